"""From the cost of a chunk to that of billions: shards, hours, memory, disk and network, in closed form.

Nothing here is measured or simulated: functions of the measured constants (:mod:`scaling.constants`) and of what is
assumed (:mod:`scaling.assumptions`). Work of workers is divided by their number; what one process does alone is not,
and is named as such (Amdahl's law).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scaling.assumptions import GB, GIB, Assumptions
from scaling.constants import PARALLEL, Constants, StageCost, line

ITERATIONS, LEAST_LIST, SAMPLE = 10, 64, 64
"""Of k-means for an index of lists: rounds, and vectors for each list, at the least in it and drawn to learn from."""

SPOOL_READERS = 3
"""Stages that read what ``read`` has written: count, embed, build."""

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many machines of the assumed kind, with so many GPUs each."""

    machines: int
    gpus: int = 0

    def __post_init__(self) -> None:
        if self.machines < 1:
            raise ValueError(f"machines is {self.machines}: expected 1 or more")


@dataclass(frozen=True, slots=True)
class Encoder:
    """What makes vectors: seconds of a core for a chunk, or, with ``gpu``, as many tokens a second as is assumed."""

    name: str
    core_seconds: float
    gpu: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What so many chunks need.

    ``stores`` is into how many stores they go, ``seconds`` what each stage takes, the builds of several stores going
    side by side. ``driver``, ``worker`` and ``builder`` are MiB of one process each. ``source``, ``work``, ``store``
    and ``network`` are bytes.
    """

    chunks: int
    fleet: Fleet
    workers: int
    tasks: Mapping[str, int]
    stores: int
    seconds: Mapping[str, float]
    driver: float
    worker: float
    builder: float
    source: float
    work: float
    store: float
    network: float

    @property
    def hours(self) -> float:
        """Hours of all stages."""
        return sum(self.seconds.values()) / 3600

    @property
    def alone(self) -> float:
        """The share of that in which one process works and all others wait, 1 being all of it."""
        waiting = [seconds for stage, seconds in self.seconds.items() if stage not in PARALLEL]
        return sum(waiting) / sum(self.seconds.values())


@dataclass(frozen=True, slots=True)
class Shards:
    """Searching: chunks and MiB of a shard, machines that hold all shards in memory, milliseconds by mode."""

    shards: int
    chunks: int
    memory: float
    machines: int
    milliseconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Limit:
    """What ends at so many chunks, and of what that is the end."""

    chunks: float
    what: str


def wall(tasks: int, seconds: float, workers: int, startup: float = 0.0) -> float:
    """Return the seconds of tasks that take ``seconds`` each: all workers go on until the last round is done."""
    return startup + math.ceil(tasks / workers) * seconds


def lists(vectors: float) -> int:
    """Return the lists of an index over so many vectors, as docs/index-choice.md has it."""
    return max(1, int(min(4 * math.sqrt(vectors), vectors / LEAST_LIST)))


def index_operations(vectors: float, dim: int) -> float:
    """Return the multiplications and additions for learning the centroids of lists, and finding each vector's list."""
    count = lists(vectors)
    return 2 * dim * count * (ITERATIONS * SAMPLE * count + vectors)


def build_seconds(constants: Constants, chunks: float, assumed: Assumptions) -> float:
    """Return the seconds in which one process builds the store of so many chunks, whatever the workers.

    The measured line, and beyond the largest measured size what is more than linear: finding lists for the vectors.
    """
    cost = constants.stages["build"]
    measured = cost.chunks_per_task
    linear = index_operations(measured, constants.dim) * chunks / measured
    more = max(0.0, index_operations(chunks, constants.dim) - linear) / (assumed.core_rate * constants.cores)
    return cost.startup + cost.per_chunk * chunks + more


def plan(
    constants: Constants, encoder: Encoder, chunks: int, fleet: Fleet, assumed: Assumptions, *, one_store: bool
) -> Plan:
    """Return what ``chunks`` need, in one store, as ragembed builds them, or in stores of the assumed size.

    Several stores are built side by side: on each machine as many as it has times the cores of the measured one, and
    as its memory holds.
    """
    cores = fleet.machines * int(assumed.cores)
    stores = 1 if one_store else math.ceil(chunks / assumed.store_chunks)
    tasks = {
        name: math.ceil(chunks / cost.chunks_per_task) for name, cost in constants.stages.items() if name in PARALLEL
    }
    seconds = {}
    for name, cost in constants.stages.items():
        if name in PARALLEL:
            each = _core_seconds(constants, encoder, name) * cost.chunks_per_task
            took = wall(tasks[name], each, cores, cost.startup)
            if name == "embed" and encoder.gpu:
                took = max(took, chunks * constants.tokens / (fleet.machines * max(1, fleet.gpus) * assumed.gpu_tokens))
            seconds[name] = max(took, tasks[name] * assumed.dispatch)
        elif name != "build":
            seconds[name] = cost.startup + cost.per_chunk * chunks
    moved = network(constants, chunks, fleet)
    seconds["read"] = max(seconds["read"], constants.bytes["source"] * chunks / bandwidth(fleet, assumed))
    of_one = math.ceil(chunks / stores)
    builder = constants.driver.at(of_one)
    at_once = fleet.machines * max(1, min(int(assumed.cores) // constants.cores, int(_memory(assumed) / builder)))
    seconds["build"] = math.ceil(stores / at_once) * build_seconds(constants, of_one, assumed)
    return Plan(
        chunks,
        fleet,
        cores,
        tasks,
        stores,
        seconds,
        constants.driver.at(chunks if one_store else of_one),
        constants.worker,
        builder,
        constants.bytes["source"] * chunks,
        constants.bytes["work"] * chunks,
        _store_bytes(constants) * chunks,
        moved,
    )


def network(constants: Constants, chunks: float, fleet: Fleet) -> float:
    """Return the bytes that go over the network.

    The documents once; and where there are several machines, chunks that are written and read by three stages, vectors
    that are written and read once, and the store that is put in its place.
    """
    once = constants.bytes["source"] * chunks
    if fleet.machines == 1:
        return once
    raw = constants.bytes["raw"]
    spool = max(0.0, constants.bytes["work"] - raw)
    return once + chunks * (spool * (1 + SPOOL_READERS) + 2 * raw + _store_bytes(constants))


def bandwidth(fleet: Fleet, assumed: Assumptions) -> float:
    """Return the bytes a second that all machines together get from where the documents are."""
    return GB * min(assumed.storage, fleet.machines * assumed.network)


def shards(constants: Constants, chunks: int, count: int, assumed: Assumptions) -> Shards:
    """Return what searching ``count`` shards takes: each is asked at the same time, and the slowest counts.

    Of a shard, index and postings are kept in memory; milliseconds are on the line through what was measured.
    """
    each = math.ceil(chunks / count)
    memory = each * (constants.bytes["index"] + constants.bytes["postings"]) / MIB
    modes = next(iter(constants.answers.values()), {})
    away = assumed.round_trip if count > 1 else 0.0
    asked = {mode: line([(size, each[mode]) for size, each in constants.answers.items()]) for mode in modes}
    milliseconds = {mode: away + grows.at(each) for mode, grows in asked.items()}
    return Shards(count, each, memory, math.ceil(count * memory / _memory(assumed)), milliseconds)


def limits(constants: Constants, assumed: Assumptions) -> list[Limit]:
    """Return what one store, built by one process, comes to the end of, the first first."""
    day = 24 * 3600
    blocks = constants.stages["embed"].chunks_per_task
    room = (_memory(assumed) - constants.driver.fixed) / constants.driver.slope if constants.driver.slope else math.inf
    store = assumed.disk * GB / (_store_bytes(constants) + constants.bytes["work"])
    build = _chunks_in(constants, day, assumed)
    found = [
        Limit(build, "one process that builds the store, within a day"),
        Limit(room, f"memory of the driver, {assumed.memory:.0f} GiB: ids, lines and rows of all chunks"),
        Limit(store, f"disk of the machine that builds, {assumed.disk / 1000:.0f} TB: the store, and the work folder"),
        Limit(2**31, "positions in a graph (`hnsw`), 32-bit numbers; lists have 64"),
        Limit(
            _memory(assumed) * MIB / constants.bytes["index"],
            f"memory of one machine that searches, {assumed.memory:.0f} GiB: the index",
        ),
        Limit(assumed.folder_files * blocks, f"one folder of blocks, {assumed.folder_files:,.0f} files"),
        Limit(
            day / assumed.dispatch * blocks,
            f"one driver that notes a task in {1000 * assumed.dispatch:g} ms, within a day",
        ),
        Limit(SQLITE_BYTES / constants.bytes["database"], "one SQLite file of pages of 4 KiB"),
    ]
    return sorted(found, key=lambda one: one.chunks)


SQLITE_BYTES = 4096 * (2**32 - 2)
"""The largest database of pages of 4 KiB."""


def encoders(constants: Constants, model: Constants | None) -> dict[str, Encoder]:
    """Return static vectors as measured with ``constants``, and, where ``model`` is, its model on cores and on GPUs.

    The model's time grows with the tokens of a chunk. A GPU has its texts from a core that splits them into tokens,
    as the stage ``count`` does.
    """
    cores = constants.cores
    found = {"static": Encoder("static vectors", constants.stages["embed"].core_seconds(cores))}
    if model is not None:
        tokens = constants.tokens / model.tokens
        found["cores"] = Encoder("MiniLM on cores", model.stages["embed"].core_seconds(model.cores) * tokens)
        found["gpus"] = Encoder("MiniLM on GPUs", constants.stages["count"].core_seconds(cores), gpu=True)
    return found


def _core_seconds(constants: Constants, encoder: Encoder, stage: str) -> float:
    cost: StageCost = constants.stages[stage]
    return encoder.core_seconds if stage == "embed" else cost.core_seconds(constants.cores)


def _store_bytes(constants: Constants) -> float:
    return sum(constants.bytes[name] for name in ("raw", "index", "database", "postings"))


def _memory(assumed: Assumptions) -> float:
    """Return MiB of a machine."""
    return assumed.memory * GIB / MIB


def _chunks_in(constants: Constants, seconds: float, assumed: Assumptions) -> float:
    """Return how many chunks one process builds a store of in that time, by bisection."""
    low, high = 1.0, 1.0
    while build_seconds(constants, high, assumed) < seconds:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if build_seconds(constants, middle, assumed) < seconds else (low, middle)
    return low
