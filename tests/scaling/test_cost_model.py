"""The cost model and the simulator of benchmarks/scaling/: cases whose answer is known by hand, and what must hold."""

import heapq
import math
import os
import sys
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.distributed import stages as counting
from ragembed.distributed.stages import plan_blocks

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
OWN = ("scaling", "speed_paths", "report", "collection", "environments", "contestants", "measure", "indexing")

COSTS = {"read": (2.0, 0.001), "fit": (2.0, 0.0005), "embed": (3.0, 0.004)}
"""Of each stage what a worker needs once, and seconds a chunk."""
FILE_CHUNKS, SHARD_CHUNKS = 64, 1_000
ALONE_ONCE, ALONE = 10.0, 0.0002
"""Seconds of one process alone, and those to multiply with n ln n."""


def last_end(sizes, workers):
    """Return when the last task ends, each being taken by who is free first."""
    ends = [0.0] * workers
    for size in sizes:
        heapq.heapreplace(ends, ends[0] + size)
    return max(ends)


def alone(chunks):
    return ALONE_ONCE + ALONE * chunks * math.log(chunks)


@pytest.fixture(scope="module")
def scaling():
    """The modules by name."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield lambda name: import_module(f"scaling.{name}")
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def simulator(scaling):
    return scaling("simulator")


@pytest.fixture(scope="module")
def model(scaling):
    return scaling("model")


@pytest.fixture(scope="module")
def assumed(scaling):
    return scaling("assumptions").Assumptions()


@pytest.fixture(scope="module")
def make_run(scaling):
    """A run as it would be on a machine of two cores on which two workers are 1.6 times as fast as one, and no more."""
    records, task_sizes = scaling("records"), scaling("checking").task_sizes

    def make(workers, chunks):
        slower = workers / (1, 1.6, 1.6, 1.6)[workers - 1]
        stages = []
        for name, (startup, each) in COSTS.items():
            sizes = task_sizes(name, chunks // SHARD_CHUNKS, chunks // FILE_CHUNKS, chunks)
            seconds = (startup + each * last_end(sizes, workers)) * slower
            busy = (min(workers, len(sizes)) * startup + chunks * each) * slower
            stages.append(records.StageReport(name, len(sizes), chunks, seconds, busy, 300.0))
        sizes = {"source": 500, "work": 2_000, "raw": 768, "index": 400, "database": 1_200, "postings": 100}
        return records.Run(
            workers,
            chunks // FILE_CHUNKS,
            chunks,
            100.0,
            alone(chunks) + sum(stage.seconds for stage in stages),
            200.0 + chunks / 2**20 * 64,
            [310.0] * workers,
            400.0,
            {name: size * chunks for name, size in sizes.items()},
            tuple(stages),
            {"dense": 1.0 + chunks / 10_000, "lexical": chunks / 20_000} if workers == 4 else {},
        )

    return make


@pytest.fixture(scope="module")
def part(scaling, make_run):
    runs = [make_run(workers, chunks) for chunks in (40_000, 400_000) for workers in (1, 2, 4)]
    about = ("made", ("--index", "flat"), 384, "2026-11-22", "a machine", 2, 0.5)
    return scaling("records").Part(*about, (*runs, make_run(2, 800_000)))


@pytest.fixture(scope="module")
def constants(scaling, part):
    return scaling("constants").constants_of(part)


@pytest.fixture(scope="module")
def static(model, constants):
    return model.encoders(constants, None)["static"]


# Measuring

PROGRAM = """
import multiprocessing, sys, time

def work(megabytes):
    kept = bytearray(megabytes * 2**20)
    time.sleep(1.5)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(megabytes,)) for megabytes in (60, 120)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    open(sys.argv[1], "wb").write(bytes(1_000))
    print("done")
"""


def test_memory_is_told_of_each_process_by_itself(scaling, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "work").mkdir()
    watching, runner = scaling("watching"), import_module("measure").Runner(tmp_path, os.environ)
    command = [sys.executable, tmp_path / "program.py", tmp_path / "work" / "file.bin"]
    seen = watching.watch(command, runner, tmp_path / "work")
    assert seen.printed == "done\n"
    assert seen.files == 1_000
    large, small = seen.workers
    assert 120 < large < 150
    assert 60 < small < 90
    assert seen.driver < 50
    assert seen.resident >= large
    with pytest.raises(RuntimeError, match="exit status 1"):
        watching.watch([sys.executable, "-c", "raise SystemExit(1)"], runner, tmp_path)


def test_bytes_are_those_of_files_with_an_ending(scaling, tmp_path):
    (tmp_path / "inner").mkdir()
    for name, size in (("a.f16", 3), ("inner/b.f16", 4), ("inner/c.faiss", 5)):
        (tmp_path / name).write_bytes(bytes(size))
    folder_bytes = scaling("watching").folder_bytes
    assert (folder_bytes(tmp_path), folder_bytes(tmp_path, ".f16"), folder_bytes(tmp_path / "none")) == (12, 7, 0)


# The simulator


@pytest.mark.parametrize("seconds", [[2.0], [1.0, 2.0, 3.5], [0.0, 4.0]])
def test_one_worker_takes_the_sum(simulator, seconds):
    done = simulator.simulate([simulator.Task(each) for each in seconds], simulator.Cluster(1, startup=5.0))
    assert done == simulator.Outcome(pytest.approx(5 + sum(seconds)), pytest.approx(sum(seconds)), 0.0, 0)


@pytest.mark.parametrize(("tasks", "workers"), [(12, 4), (13, 4), (1, 8), (100, 7)])
def test_equal_tasks_take_as_many_rounds_as_the_model_says(simulator, model, tasks, workers):
    done = simulator.simulate([simulator.Task(3.0)] * tasks, simulator.Cluster(workers, startup=2.0))
    assert done.seconds == pytest.approx(2 + 3 * math.ceil(tasks / workers))
    assert done.seconds == pytest.approx(model.wall(tasks, 3.0, workers, 2.0))


def test_nothing_to_do_takes_no_time(simulator):
    assert simulator.simulate([], simulator.Cluster(3, startup=9.0)).seconds == 0


@given(
    seconds=st.lists(st.floats(0.01, 100), min_size=1, max_size=30),
    workers=st.integers(1, 8),
    in_flight=st.just(1),
)
def test_more_workers_never_take_longer_and_never_less_than_their_share(simulator, seconds, workers, in_flight):
    tasks = [simulator.Task(each) for each in seconds]
    few, more = (
        simulator.simulate(tasks, simulator.Cluster(count, in_flight=in_flight)).seconds
        for count in (workers, workers + 1)
    )
    assert more <= few * (1 + 1e-9)
    assert few >= max(sum(seconds) / workers, max(seconds)) * (1 - 1e-9)
    assert few <= (sum(seconds) / workers + max(seconds)) * (1 + 1e-9)  # Graham's bound


def test_workers_that_share_cores_are_as_fast_as_was_measured_together(simulator, scaling):
    together = scaling("constants").Together(((1, 1.0), (2, 1.6)))
    for workers, seconds in ((1, 80.0), (2, 50.0), (4, 50.0)):
        cluster = simulator.Cluster(workers, together=together)
        assert simulator.simulate([simulator.Task(10.0)] * 8, cluster).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(("workers", "seconds"), [(1, 10.0), (2, 12.5), (4, 12.5)])
def test_one_of_several_has_its_share_of_the_cores_while_the_others_are_idle(simulator, scaling, workers, seconds):
    together = scaling("constants").Together(((1, 1.0), (2, 1.6), (4, 1.6)))
    cluster = simulator.Cluster(workers, cores=2, together=together)
    assert simulator.simulate([simulator.Task(10.0)], cluster).seconds == pytest.approx(seconds)


def test_two_machines_share_no_cores(simulator, scaling):
    together = scaling("constants").Together(((1, 1.0), (2, 1.0)))
    one, two = (simulator.Cluster(4, machines, together=together) for machines in (1, 2))
    tasks = [simulator.Task(10.0)] * 8
    assert simulator.simulate(tasks, one).seconds == pytest.approx(80)
    assert simulator.simulate(tasks, two).seconds == pytest.approx(40)


def test_the_network_is_shared_and_computing_goes_on_meanwhile(simulator):
    """Both fetch 10 bytes at 5 a second each, then compute; alone, a worker has no more than its link."""
    tasks = [simulator.Task(1.0, 10.0)] * 2
    assert simulator.simulate(tasks, simulator.Cluster(2, network=10.0, link=8.0)).seconds == pytest.approx(3)
    assert simulator.simulate(tasks[:1], simulator.Cluster(2, network=10.0, link=8.0)).seconds == pytest.approx(2.25)


def test_a_driver_that_is_slow_is_what_all_wait_for(simulator):
    cluster = simulator.Cluster(100, dispatch=0.5)
    assert simulator.simulate([simulator.Task(1.0)] * 40, cluster).seconds == pytest.approx(40 * 0.5 + 1)


def test_a_task_that_waits_at_the_worker_hides_the_driver(simulator):
    tasks = [simulator.Task(1.0)] * 10
    alone, ahead = (
        simulator.simulate(tasks, simulator.Cluster(1, dispatch=0.5, in_flight=in_flight)) for in_flight in (1, 2)
    )
    assert (alone.seconds, ahead.seconds) == (pytest.approx(15.0), pytest.approx(10.5))


def test_what_waits_at_a_slow_worker_is_not_taken_from_it(simulator):
    tasks = [simulator.Task(each) for each in (100.0, 1.0, 1.0, 1.0)]
    taken, left = (simulator.simulate(tasks, simulator.Cluster(2, in_flight=in_flight)) for in_flight in (1, 2))
    assert (taken.seconds, left.seconds) == (pytest.approx(100.0), pytest.approx(101.0))


def at(*failures):
    """Fail at these times, by worker."""
    times = {}
    for worker, when in failures:
        times.setdefault(worker, []).append(when)
    return lambda worker, now: next((when for when in times.get(worker, []) if when > now), math.inf)


def test_a_failure_loses_what_was_done_of_one_task(simulator):
    """The second task is lost after 4 of its 10 seconds; the worker is back 3 seconds later and starts for 1."""
    cluster = simulator.Cluster(1, startup=1.0, restart=3.0)
    done = simulator.simulate([simulator.Task(10.0)] * 3, cluster, at((0, 15.0)))
    assert done == simulator.Outcome(pytest.approx(1 + 10 + 4 + 3 + 1 + 20), 30.0, pytest.approx(4.0), 1)


@given(
    tasks=st.integers(1, 40),
    workers=st.integers(1, 6),
    times=st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 200.0)), max_size=6),
)
def test_each_failure_costs_at_most_a_task_and_the_new_start(simulator, tasks, workers, times):
    cluster = simulator.Cluster(workers, startup=2.0, restart=5.0)
    equal = [simulator.Task(7.0)] * tasks
    usual, struck = simulator.simulate(equal, cluster), simulator.simulate(equal, cluster, at(*times))
    assert struck.busy == pytest.approx(usual.busy)
    assert struck.lost <= 7 * struck.failures + 1e-9
    assert struck.seconds >= usual.seconds - 1e-9
    assert struck.seconds <= usual.seconds + struck.failures * (7 + 5 + 2) + 1e-9


def test_a_worker_that_fails_while_it_fetches_leaves_the_network(simulator):
    cluster = simulator.Cluster(2, network=10.0, restart=100.0)
    done = simulator.simulate([simulator.Task(1.0, 100.0)] * 2, cluster, at((0, 10.0)))
    # Both get 5 bytes a second for 10 s; the second then gets 10: done at 16, and takes the lost task.
    assert done.seconds == pytest.approx(16 + 10 + 1)


def test_random_failures_come_as_often_as_they_were_asked_for(simulator):
    cluster = simulator.Cluster(10)
    done = simulator.simulate([simulator.Task(1.0)] * 20_000, cluster, simulator.at_random(100.0, seed=1))
    assert done.failures == pytest.approx(10 * done.seconds / 100, rel=0.2)
    assert done == simulator.simulate([simulator.Task(1.0)] * 20_000, cluster, simulator.at_random(100.0, seed=1))


def test_uneven_tasks_have_the_same_mean_and_some_are_slow(simulator):
    tasks = [simulator.Task(10.0, 3.0)] * 20_000
    assert simulator.uneven(tasks, 0.0, 0.0, 9.0, seed=0) == tasks
    seconds = [task.seconds for task in simulator.uneven(tasks, 0.2, 0.0, 9.0, seed=0)]
    assert sum(seconds) / len(seconds) == pytest.approx(10, rel=0.01)
    slow = [task for task in simulator.uneven(tasks, 0.0, 0.1, 4.0, seed=0) if task.seconds > 10]
    assert len(slow) == pytest.approx(2_000, rel=0.1)
    assert {(round(task.seconds, 6), task.bytes) for task in slow} == {(40.0, 3.0)}


@pytest.mark.parametrize("name", ["workers", "machines", "in_flight"])
def test_a_cluster_of_nothing_is_refused(simulator, name):
    with pytest.raises(ValueError, match=f"{name} is 0: expected 1 or more"):
        simulator.Cluster(**{"workers": 1, name: 0})


# Constants


def test_lines_go_through_the_outer_points_and_are_never_negative(scaling):
    line, points = scaling("constants").line, [(10, 7.0), (20, 9.0), (30, 11.0)]
    assert line(points) == scaling("constants").Line(5.0, 0.2)
    assert line([(10, 1.0), (20, 4.0)]) == scaling("constants").Line(0.0, 0.2)
    assert line([(10, 4.0), (20, 2.0)]) == scaling("constants").Line(3.0, 0.0)
    assert line([(10, 4.0)]) == scaling("constants").Line(0.0, 0.4)


def test_workers_together_are_as_fast_as_measured_and_between(scaling):
    together = scaling("constants").Together(((1, 1.0), (2, 1.8), (4, 2.0)))
    assert [together.at(workers) for workers in (0.5, 1, 1.5, 3, 4, 99)] == pytest.approx([0.5, 1, 1.4, 1.9, 2, 2])
    assert together.slower(4) == pytest.approx(2.0)


def test_constants_are_what_the_runs_were_made_with(constants):
    assert (constants.alone.fixed, constants.alone.slope) == (pytest.approx(ALONE_ONCE), pytest.approx(ALONE))
    for name, (startup, each) in COSTS.items():
        cost = constants.stages[name]
        assert (cost.startup, cost.per_chunk) == (pytest.approx(startup), pytest.approx(each))
        assert cost.per_task == pytest.approx(0.0, abs=1e-9)
        assert cost.together.measured == ((1, 1.0), (2, pytest.approx(1.6)), (4, pytest.approx(1.6)))
        assert cost.core_seconds(2) == pytest.approx(each * 2 / 1.6)
    assert [constants.stages[name].chunks_per_task for name in COSTS] == pytest.approx([1_000, 8_192, 1_024], rel=0.01)
    assert (constants.worker.fixed, constants.worker.slope) == (310, 0)
    assert constants.driver.slope * 2**20 == pytest.approx(64)
    assert constants.bytes == {
        "source": 500,
        "work": 2_000,
        "raw": 768,
        "index": 400,
        "database": 1_200,
        "postings": 100,
    }


def test_tasks_have_the_sizes_that_the_stages_give_them(scaling):
    """Files of 100 chunks are written eleven at a time: a block of 1,024, and one of 76."""
    task_sizes = scaling("checking").task_sizes
    assert task_sizes("read", 4, 7, 1_000) == [250.0] * 4
    for files, each in ((30, 100), (2_500, 1), (1, 5_000), (64, 64)):
        chunks = files * each
        hashes = [number.to_bytes(16, "little") for number in range(chunks)]
        ends = plan_blocks([each] * files, hashes, lambda _: []).ends
        assert task_sizes("embed", 0, files, chunks) == pytest.approx(np.diff(ends, prepend=0))
        ranges = task_sizes("fit", 0, files, chunks)
        assert (len(ranges), sum(ranges)) == (counting.ranges(chunks), chunks)


def test_what_gave_the_constants_is_told_and_all_runs_are_predicted(scaling, part):
    checked = scaling("checking").check("made", part)
    assert [(one.run.chunks, one.run.workers, one.gave) for one in checked] == [
        (40_000, 1, "costs"),
        (40_000, 2, ""),
        (40_000, 4, ""),
        (400_000, 1, "costs"),
        (400_000, 2, "slowing"),
        (400_000, 4, "slowing"),
        (800_000, 2, ""),
    ]
    for one in checked:
        assert one.simulated == pytest.approx(one.run.seconds, rel=0.05)
    assert scaling("checking").told(checked) == []


def test_a_run_that_took_longer_than_simulated_is_told(scaling, part, make_run):
    late = replace(make_run(2, 40_000), seconds=2 * make_run(2, 40_000).seconds)
    checked = scaling("checking").check("made", replace(part, runs=(*part.runs, late)))
    [sentence] = scaling("checking").told(checked)
    assert sentence.startswith("made, 40,000 chunks, 2 workers: ")
    assert sentence.endswith("-50%: allowed are 20%")


def test_records_are_read_as_they_were_written(scaling, part, tmp_path):
    records, file = scaling("records"), tmp_path / "constants.json"
    assert records.read(file) == {}
    records.write({"rows": part}, {}, file)
    found = records.read(file)["rows"]
    assert scaling("constants").constants_of(found) == scaling("constants").constants_of(part)
    assert found.sizes == [40_000, 400_000, 800_000]


# The model


def test_stages_of_one_machine_are_its_work_divided_by_its_cores(model, scaling, constants, static):
    assumed = scaling("assumptions").Assumptions(cores=4)
    found = model.plan(constants, static, 8_000_000, model.Fleet(1), assumed, one_store=True)
    assert found.tasks == {"read": 8_000, "fit": counting.ranges(8_000_000), "embed": 7_820}
    assert found.seconds["read"] == pytest.approx(2 + 8e6 * 0.001 * (2 / 1.6) / 4)
    assert found.seconds["embed"] == pytest.approx(3 + 8e6 * 0.004 * (2 / 1.6) / 4)
    assert found.seconds["alone"] >= alone(8e6)
    assert found.hours == pytest.approx(sum(found.seconds.values()) / 3600)
    assert (found.source, found.work, found.store) == (8e6 * 500, 8e6 * 2_000, 8e6 * 2_468)
    assert found.network == found.source


def test_fitting_has_so_many_ranges_that_more_workers_have_nothing_to_do(model, constants, static, assumed):
    few, many = (
        model.plan(constants, static, 10**9, model.Fleet(machines), assumed, one_store=True) for machines in (2, 16)
    )
    assert few.tasks["fit"] == many.tasks["fit"] <= 64
    assert few.seconds["fit"] == many.seconds["fit"]


def test_no_machine_more_shortens_what_one_process_does(model, constants, static, assumed):
    """Amdahl: with ever more machines the time comes near to that of the stages of one process."""
    plans = [
        model.plan(constants, static, 10**9, model.Fleet(machines), assumed, one_store=True)
        for machines in (1, 2, 4, 8, 16)
    ]
    assert all(more.hours <= few.hours for few, more in pairwise(plans))
    assert all(more.alone >= few.alone for few, more in pairwise(plans))
    assert len({each.seconds["alone"] for each in plans}) == 1
    assert plans[-1].hours * 3600 >= plans[-1].seconds["alone"]


def test_several_stores_are_written_side_by_side(model, constants, static, assumed):
    one, several = (
        model.plan(constants, static, 10**9, model.Fleet(16), assumed, one_store=one_store)
        for one_store in (True, False)
    )
    assert (one.stores, several.stores) == (1, 50)
    assert several.seconds["alone"] == pytest.approx(model.alone_seconds(constants, 20_000_000, assumed))
    assert several.seconds["alone"] < one.seconds["alone"] / 50
    assert several.driver == pytest.approx(constants.driver.at(20_000_000))


def test_memory_decides_how_many_stores_a_machine_writes_at_once(model, scaling, constants, static):
    small = scaling("assumptions").Assumptions(memory=3, store_chunks=2e7)  # GiB: a driver takes 1.4
    found = model.plan(constants, static, 80_000_000, model.Fleet(1), small, one_store=False)
    assert found.seconds["alone"] == pytest.approx(2 * model.alone_seconds(constants, 20_000_000, small))


def test_writing_a_store_is_at_least_linear(model, constants, assumed):
    seconds = [model.alone_seconds(constants, chunks, assumed) for chunks in (10**5, 10**6, 10**7, 10**8)]
    assert seconds[0] == pytest.approx(alone(1e5))
    assert all(more >= 9 * few for few, more in pairwise(seconds))


def test_lists_are_those_of_the_documentation(model):
    assert [model.lists(vectors) for vectors in (1, 6_400, 10**6)] == [1, 100, 4_000]
    assert model.index_operations(10**6, 384) == 2 * 384 * 4_000 * (10 * 64 * 4_000 + 10**6)


def test_gpus_take_what_is_assumed_of_them_unless_the_cores_cannot_feed_them(model, scaling, constants):
    encoder = model.encoders(constants, constants)["gpus"]
    slow, fast = (scaling("assumptions").Assumptions(gpu_tokens=tokens) for tokens in (1_000, 1e12))
    for assumed, seconds in ((slow, 1e7 * 100 / (2 * 1_000)), (fast, 2 + 1e7 * 0.0005 * (2 / 1.6) / 32 + 1)):
        found = model.plan(constants, encoder, 10_000_000, model.Fleet(1, gpus=2), assumed, one_store=True)
        assert found.seconds["embed"] == pytest.approx(seconds, rel=0.02)


def test_a_slow_network_is_what_reading_waits_for(model, scaling, constants, static):
    assumed = scaling("assumptions").Assumptions(network=0.001)
    found = model.plan(constants, static, 10_000_000, model.Fleet(2), assumed, one_store=True)
    assert found.seconds["read"] == pytest.approx(500 * 1e7 / 0.002e9)
    spool, raw, store = 2_000 - 768, 768, 2_468
    assert found.network == pytest.approx(1e7 * (500 + 4 * spool + 2 * raw + store))


def test_a_driver_that_notes_a_task_in_a_second_is_what_tasks_wait_for(model, scaling, constants, static):
    assumed = scaling("assumptions").Assumptions(dispatch=1.0)
    found = model.plan(constants, static, 10_000_000, model.Fleet(100), assumed, one_store=True)
    assert found.seconds["embed"] == found.tasks["embed"] == 9_775


def test_shards_are_asked_at_the_same_time(model, constants, assumed):
    one, ten = (model.shards(constants, 10**7, count, assumed) for count in (1, 10))
    assert one.milliseconds["dense"] == pytest.approx(1 + 1_000)
    assert ten.milliseconds["dense"] == pytest.approx(1 + 100 + assumed.round_trip)
    assert ten.memory * 10 == pytest.approx(one.memory) == pytest.approx(1e7 * 500 / 2**20)
    assert one.machines == 1


def test_limits_come_in_order_and_are_where_the_model_says(model, constants, assumed):
    found = model.limits(constants, assumed)
    assert [one.chunks for one in found] == sorted(one.chunks for one in found)
    written = next(one for one in found if one.what.startswith("one process that writes"))
    assert model.alone_seconds(constants, written.chunks, assumed) == pytest.approx(86_400, rel=1e-6)
    driver = next(one for one in found if one.what.startswith("memory of the driver"))
    assert constants.driver.at(driver.chunks) == pytest.approx(assumed.memory * 1024)


def test_a_fleet_of_no_machines_is_refused(model):
    with pytest.raises(ValueError, match="machines is 0: expected 1 or more"):
        model.Fleet(0)


# The pages


def test_mishaps_cost_time_and_not_much(scaling, model, constants, static, assumed):
    planned = model.plan(constants, static, 10_000_000, model.Fleet(4), assumed, one_store=False)
    hours = scaling("checking").with_mishaps(planned, constants, static, assumed, seed=0)
    assert planned.hours <= hours <= 1.5 * planned.hours


def test_the_tables_name_every_stage_size_and_limit(scaling, part):
    shown = scaling("planned").planned({"rows": part, "model": part})
    for text in ("10,000,000 chunks", "10,000,000,000 chunks", "`fit`", "MiniLM on GPUs", "not built", "SQLite file"):
        assert text in shown
    assert "nan" not in shown
    section = scaling("tables").results({"rows": part})
    assert "Workers have at most 310 MiB: all are below 4,096." in section
    assert "From 40,000 to 800,000 chunks, 20.0 times as many, the memory of a worker is 1.00 times" in section


def test_the_documentation_shows_what_was_measured_last(scaling):
    """The tables of docs/scale.md are what ``benchmarks/scale.py --write`` makes of the recorded runs."""
    made = scaling("planned").planned(scaling("records").read())
    assert import_module("report").read_section("scale", ROOT / "docs" / "scale.md") == made
