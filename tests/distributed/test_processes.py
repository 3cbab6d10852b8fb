import os
import re
import signal
import time
from pathlib import Path

import pytest
from sabotage import MakeRecorder

from ragembed.distributed import workers
from ragembed.distributed.workers import ProcessWorkers
from ragembed.errors import ConfigError, WorkerLostError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the tests kill processes with POSIX signals")


@pytest.fixture
def engine():
    with ProcessWorkers(2) as engine:
        yield engine


def tries(folder, number, stage="read"):
    return (folder / f"{stage}-{number}").read_text().split()


def test_tasks_use_at_most_the_given_number_of_processes(engine, tmp_path):
    done = list(engine.run(MakeRecorder(tmp_path, {}), "read", range(9)))
    assert sorted(one.number for one in done) == list(range(9))
    assert len({one.worker for one in done}) <= 2
    assert f"here:{os.getpid()}" not in {one.worker for one in done}


def test_processes_are_reused_for_the_next_stage(engine, tmp_path):
    make = MakeRecorder(tmp_path, {})
    first = {one.worker for one in engine.run(make, "read", range(6))}
    assert {one.worker for one in engine.run(make, "fit", range(6))} <= first


def test_task_of_a_killed_process_is_repeated(engine, tmp_path):
    done = list(engine.run(MakeRecorder(tmp_path, {3: "dies once"}), "read", range(6)))
    assert sorted(one.number for one in done) == list(range(6))
    assert len(set(tries(tmp_path, 3))) == 2
    assert all(len(tries(tmp_path, number)) == 1 for number in (0, 1, 2, 4, 5))


def test_task_that_always_kills_its_process_aborts_the_run(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "MOST_LOSSES", 3)
    with pytest.raises(WorkerLostError, match="3 workers died on task 1 of stage 'read'"):
        list(engine.run(MakeRecorder(tmp_path, {1: "dies"}), "read", range(3)))
    assert len(tries(tmp_path, 1)) == 3


def test_exception_of_a_task_is_raised_without_retry(engine, tmp_path):
    with pytest.raises(ConfigError, match="task 2 is not accepted"):
        list(engine.run(MakeRecorder(tmp_path, {2: "fails"}), "read", range(4)))
    assert len(tries(tmp_path, 2)) == 1


def test_closing_the_generator_ends_the_processes(tmp_path):
    engine = ProcessWorkers(2)
    running = engine.run(MakeRecorder(tmp_path, {1: "sleeps"}), "read", range(2))
    assert next(running).number == 0
    while not (tmp_path / "read-1").exists():
        time.sleep(0.01)
    running.close()
    [pid] = tries(tmp_path, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_zero_workers_are_rejected():
    with pytest.raises(ConfigError, match="workers is 0: expected 1 or more"):
        ProcessWorkers(0)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the signal mask is read from /proc")
def test_processes_ignore_ctrl_c_from_their_start(engine, tmp_path):
    list(engine.run(MakeRecorder(tmp_path, {}), "read", range(1)))
    [pid] = tries(tmp_path, 0)
    blocked = re.search(r"SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[1]
    assert int(blocked, 16) & 1 << signal.SIGINT - 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
