"""Indexing on a cluster with failing workers, nodes and drivers. The scenarios run in a network namespace.

``store_scenarios.py FOLDER`` writes three stores of ``FOLDER/docs`` per scenario, in ``FOLDER``, and prints the
reports as one line of JSON. ``store_scenarios.py FOLDER ADDRESS NAME`` is the driver that is killed.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from cluster import cluster

from ragembed.config.settings import EmbedderConfig
from ragembed.distributed.members import create_members
from ragembed.distributed.ray_workers import RayWorkers
from ragembed.indexes.indexing.request import IndexingRequest

CONFIG = EmbedderConfig(extractor="re:dim=32")


class Slow:
    """A worker with slow tasks, to leave time for failures. Reading the file ``poisoned`` kills its process."""

    def __init__(self, worker, folder, poisoned=None):
        self.worker, self.folder, self.poisoned = worker, Path(folder), poisoned

    def __call__(self):
        import ray

        perform = self.worker()
        node = ray.get_runtime_context().get_node_id()
        if self.poisoned is not None:
            make_deadly(self.poisoned)

        def slowly(stage, number):
            (self.folder / f"{stage}.{number}.{node}.{os.getpid()}.{time.time_ns()}").touch()
            time.sleep(0.2)
            return perform(stage, number)

        return slowly


def make_deadly(name):
    from ragembed.indexes.indexing import scan

    read = scan.read

    def deadly(file, data, options):
        if file == name:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(file, data, options)

    scan.read = deadly


class SlowWorkers(RayWorkers):
    def __init__(self, address, folder, poisoned=None):
        super().__init__(address)
        self._slowed = folder, poisoned
        self._wrapped = {}

    def run(self, make, stage, numbers):
        return super().run(self._wrapped.setdefault(id(make), Slow(make, *self._slowed)), stage, numbers)


def written(folder, address, name, pool=None):
    """Write three stores on the cluster, or continue an interrupted run."""
    request = IndexingRequest(folder / name, (folder / "docs",), embedder=CONFIG)
    report = create_members(request, 3, pool or RayWorkers(address))
    tasks = {stage.stage: stage.tasks for stage in report.stages}
    return {"chunks": report.chunks, "encoded": report.encoded, "skipped": report.scan.skipped, "tasks": tasks}


def notes_of(folder, name):
    notes = folder / f"notes-{name}"
    notes.mkdir()
    return notes


def begun(notes, pattern="read.*"):
    """Wait until a task starts, and return the parts of its note's name."""
    while not (found := sorted(notes.glob(pattern))):
        time.sleep(0.02)
    return found[0].name.split(".")


def a_killed_worker(folder, nodes):
    notes = notes_of(folder, "worker")

    def kill():
        os.kill(int(begun(notes)[3]), signal.SIGKILL)

    threading.Thread(target=kill).start()
    return written(folder, nodes.address, "worker", SlowWorkers(nodes.address, notes))


def a_poisoned_file(folder, nodes):
    notes = notes_of(folder, "poisoned")
    return written(folder, nodes.address, "poisoned", SlowWorkers(nodes.address, notes, "05.md"))


def a_killed_driver(folder, nodes):
    """Kill the driver after two parts are read; another driver continues."""
    driver = subprocess.Popen([sys.executable, __file__, str(folder), nodes.address, "driver"])
    read = folder / ".driver.unfinished" / "work" / "read"
    while len(finished := list(read.glob("0000?"))) < 2:
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    return {**written(folder, nodes.address, "driver"), "finished": len(finished)}


def a_removed_node(folder, nodes):
    notes = notes_of(folder, "node")
    [other] = nodes.worker_nodes

    def remove():
        begun(notes, f"read.*.{other.node_id}.*")
        nodes.remove_node(other, allow_graceful=False)

    removing = threading.Thread(target=remove)
    removing.start()
    found = written(folder, nodes.address, "node", SlowWorkers(nodes.address, notes))
    removing.join()
    return found


def main():
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        _, _, address, store = sys.argv
        written(folder, address, store, SlowWorkers(address, notes_of(folder, store)))
        return
    with cluster(1, 1) as nodes:
        slow = (a_killed_worker, a_poisoned_file, a_killed_driver, a_removed_node)
        found = {scenario.__name__: scenario(folder, nodes) for scenario in slow}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
