"""Scenarios of tasks on a cluster with failing workers, nodes and drivers. They run in a network namespace.

As a program, this file runs the slow scenarios and prints their results as one line of JSON.
"""

import functools
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from cluster import cluster

from ragembed.distributed.ray_workers import RayWorkers
from ragembed.distributed.workers import TaskReport
from ragembed.errors import DocumentError, RagembedError


class Worker:
    """Sleeps, or performs the action that ``plan`` has for a task number. Creates a file at each start of a task."""

    def __init__(self, folder, plan, seconds):
        self.folder, self.plan, self.seconds = Path(folder), plan, seconds
        (self.folder / f"made.{os.getpid()}").touch()

    def __call__(self, stage, number):
        import ray

        node = ray.get_runtime_context().get_node_id()
        (self.folder / f"{number}.{node}.{time.time_ns()}").touch()
        fate = self.plan.get(number)
        if fate == "dies" or (fate == "dies once" and attempts(self.folder, number) == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "raises":
            raise DocumentError(f"{stage} {number} cannot be read")
        time.sleep(600 if fate == "hangs" else self.seconds)
        if self.plan.get("all") == "meet":
            self.wait_for_another()
        return TaskReport(number=number, items=10 * number, seconds=1.0, memory=1.0, worker=f"{node} {os.getpid()}")

    def wait_for_another(self):
        """Wait until a second worker has started."""
        begun = time.monotonic()
        while len(made(self.folder)) < 2:
            if time.monotonic() > begun + 60:
                raise RagembedError("one worker at a time")
            time.sleep(0.05)


def attempts(folder, number):
    return len(list(Path(folder).glob(f"{number}.*")))


def made(folder):
    return [int(file.suffix[1:]) for file in Path(folder).glob("made.*")]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_gone(pids):
    """Wait up to 60 seconds until all processes have ended. Return whether they have."""
    begun = time.monotonic()
    while (left := any(map(alive, pids))) and time.monotonic() < begun + 60:
        time.sleep(0.05)
    return not left


def summary(results):
    records = list(results)
    return {
        "done": sorted(done.number for done in records),
        "items": sum(done.items for done in records),
        "nodes": len({done.worker.split()[0] for done in records}),
        "workers": len({done.worker for done in records}),
    }


def a_poisoned_task(engine, folder):
    worker, records = functools.partial(Worker, folder, {2: "dies"}, 0.1), []
    try:
        records.extend(engine.run(worker, "embed", range(6)))
    except RagembedError as error:
        failure = [type(error).__name__, str(error)]
    return {**summary(records), "failure": failure, "attempts": [attempts(folder, number) for number in range(6)]}


def an_error(engine, folder):
    worker = functools.partial(Worker, folder, {1: "raises"}, 0.1)
    try:
        list(engine.run(worker, "embed", range(3)))
    except RagembedError as error:
        cause = "\n".join(traceback.format_exception(error.__cause__))
        return {"error": [type(error).__name__, str(error)], "cause": cause, "attempts": attempts(folder, 1)}


def no_room(address, folder):
    try:
        with RayWorkers(address, cpus=3) as pool:
            list(pool.run(functools.partial(Worker, folder, {}, 0.1), "embed", range(3)))
    except RagembedError as error:
        return [type(error).__name__, str(error)]


def parts_of_a_gpu(address, folder):
    worker = functools.partial(Worker, folder, {"all": "meet"}, 0.1)
    with RayWorkers(address, cpus=0.5, gpus=0.5) as pool:
        return summary(pool.run(worker, "embed", range(4)))


def left_early(engine, folder):
    records = engine.run(functools.partial(Worker, folder, {1: "hangs", 2: "hangs"}, 0.1), "embed", range(3))
    first = next(records).number
    records.close()
    engine.__exit__(None, None, None)
    return {"first": first, "gone": all_gone(made(folder))}


def interrupted(address, folder):
    """Send the signal to the process group, including Ray's processes, like Ctrl-C in a terminal."""
    worker = functools.partial(Worker, folder, dict.fromkeys(range(4), "hangs"), 0.1)

    def interrupt():
        while len(made(folder)) < 2:
            time.sleep(0.05)
        os.killpg(os.getpgrp(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        with RayWorkers(address) as pool:
            next(pool.run(worker, "embed", range(4)))
    except KeyboardInterrupt:
        return {"gone": all_gone(made(folder))}


def an_own_node(folder):
    """The environment has a proxy that does not answer, and a worker dies once."""
    os.environ.update(dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"))
    worker = functools.partial(Worker, folder, {"all": "meet", 3: "dies once"}, 0.1)
    with RayWorkers(workers=2) as pool:
        found = summary(pool.run(worker, "embed", range(4)))
    return {**found, "attempts": attempts(folder, 3), "gone": all_gone(made(folder))}


def nobody_there(folder):
    try:
        with RayWorkers("127.0.0.1:9") as pool:
            list(pool.run(functools.partial(Worker, folder, {}, 0.1), "embed", [1]))
    except RagembedError as error:
        return [type(error).__name__, str(error)]


def in_folder(scenario, *args):
    with tempfile.TemporaryDirectory() as folder:
        return scenario(*args, folder)


def results(scenarios, *args):
    return {scenario.__name__: in_folder(scenario, *args) for scenario in scenarios}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with cluster(1, 1, gpus=1) as nodes:
        found = results([no_room, parts_of_a_gpu], nodes.address)
        for scenario in (an_error, a_poisoned_task, left_early):
            with RayWorkers(nodes.address) as engine:  # its actors hold their CPUs until the end
                found |= results([scenario], engine)
        found |= results([interrupted], nodes.address)
    sys.stdout.write(json.dumps(found | results([an_own_node])))
