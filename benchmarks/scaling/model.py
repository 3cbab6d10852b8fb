"""From the cost of a chunk to that of billions: shards, hours, memory, disk and network, in closed form.

Nothing here is measured or simulated: functions of the measured constants (:mod:`scaling.constants`) and of what is
assumed (:mod:`scaling.assumptions`). Work of workers is divided by their number; what one process does alone is not,
and is named as such (Amdahl's law).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ragembed.distributed.stages import ranges
from ragembed.distributed.work import EMBED, FIT, READ
from scaling.assumptions import GB, GIB, Assumptions
from scaling.constants import Constants, Line, line

ITERATIONS, LEAST_LIST, SAMPLE = 10, 64, 64
"""Of k-means for an index of lists: rounds, and vectors for each list, at the least in it and drawn to learn from."""

SPOOL_READERS = 3
"""Who reads what ``read`` has written: the stages fit and embed, and the process that writes the store."""

ALONE = "alone"
"""Names, beside the stages, what one process does while all others wait: lists, adds up, writes the store."""

SQLITE_BYTES = 4096 * (2**32 - 2)
"""The largest database of pages of 4 KiB."""

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

    ``stores`` is into how many stores they go, ``seconds`` what each stage takes, and :data:`ALONE` what the process
    takes that writes a store, several writing theirs side by side. ``driver`` and ``worker`` are MiB of one such
    process each. ``source``, ``work``, ``store`` and ``network`` are bytes.
    """

    chunks: int
    fleet: Fleet
    workers: int
    tasks: Mapping[str, int]
    stores: int
    seconds: Mapping[str, float]
    driver: float
    worker: float
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
        return self.seconds[ALONE] / sum(self.seconds.values())


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


def alone_seconds(constants: Constants, chunks: float, assumed: Assumptions) -> float:
    """Return the seconds in which one process makes the store of so many chunks, whatever the workers.

    As measured, and beyond the largest measured size what grows faster still: finding lists for the vectors.
    """
    linear = index_operations(constants.chunks, constants.dim) * chunks / constants.chunks
    more = max(0.0, index_operations(chunks, constants.dim) - linear) / (assumed.core_rate * constants.cores)
    return constants.alone_seconds(chunks) + more


def tasks_of(constants: Constants, stage: str, chunks: int) -> int:
    """Return how many tasks a stage has: ``fit`` has a limited number of ranges, others tasks of the measured size."""
    return ranges(chunks) if stage == FIT else math.ceil(chunks / constants.stages[stage].chunks_per_task)


def plan(
    constants: Constants, encoder: Encoder, chunks: int, fleet: Fleet, assumed: Assumptions, *, one_store: bool
) -> Plan:
    """Return what ``chunks`` need, in one store, as ragembed makes them, or in stores of the assumed size.

    Several stores are written side by side: on each machine as many as it has times the cores of the measured one,
    and as its memory holds.
    """
    cores = fleet.machines * int(assumed.cores)
    stores = 1 if one_store else math.ceil(chunks / assumed.store_chunks)
    tasks = {name: stores * tasks_of(constants, name, math.ceil(chunks / stores)) for name in constants.stages}
    seconds = {}
    for name, cost in constants.stages.items():
        each = encoder.core_seconds if name == EMBED else cost.core_seconds(constants.cores)
        took = wall(tasks[name], each * chunks / tasks[name], cores, cost.startup)
        if name == EMBED and encoder.gpu:
            took = max(took, chunks * constants.tokens / (fleet.machines * max(1, fleet.gpus) * assumed.gpu_tokens))
        seconds[name] = max(took, tasks[name] * assumed.dispatch)
    source = constants.bytes["source"] * chunks
    seconds[READ] = max(seconds[READ], source / bandwidth(fleet, assumed))
    of_one = math.ceil(chunks / stores)
    driver = constants.driver.at(of_one)
    at_once = fleet.machines * max(1, min(int(assumed.cores) // constants.cores, int(_memory(assumed) / driver)))
    seconds[ALONE] = math.ceil(stores / at_once) * alone_seconds(constants, of_one, assumed)
    return Plan(
        chunks,
        fleet,
        cores,
        tasks,
        stores,
        seconds,
        driver,
        constants.worker.at(of_one),
        source,
        constants.bytes["work"] * chunks,
        _store_bytes(constants) * chunks,
        network(constants, chunks, fleet),
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
    """Return what one store, written by one process, comes to the end of, the first first."""
    day = 24 * 3600
    blocks = constants.stages[EMBED].chunks_per_task
    memory, gib = _memory(assumed), f"{assumed.memory:.0f} GiB"
    disk = assumed.disk * GB / (_store_bytes(constants) + constants.bytes["work"])
    found = [
        Limit(_chunks_in(constants, day, assumed), "one process that writes the store, within a day"),
        Limit(_reached(constants.driver, memory), f"memory of the driver, {gib}"),
        Limit(_reached(constants.worker, memory / assumed.cores), f"memory of a worker for each core, {gib} in all"),
        Limit(disk, f"disk of the machine that writes, {assumed.disk / 1000:.0f} TB: store and work folder"),
        Limit(2**31, "positions in a graph (`hnsw`), 32-bit numbers; lists have 64"),
        Limit(memory * MIB / constants.bytes["index"], f"memory of one machine that searches, {gib}: the index"),
        Limit(assumed.folder_files * blocks, f"one folder of blocks, {assumed.folder_files:,.0f} files"),
        Limit(day / assumed.dispatch * blocks, f"one driver, {1000 * assumed.dispatch:g} ms a task, within a day"),
        Limit(SQLITE_BYTES / constants.bytes["database"], "one SQLite file of pages of 4 KiB"),
    ]
    return sorted(found, key=lambda one: one.chunks)


def encoders(constants: Constants, model: Constants | None) -> dict[str, Encoder]:
    """Return static vectors as measured with ``constants``, and, where ``model`` is, its model on cores and on GPUs.

    The model's time grows with the tokens of a chunk. A GPU has its texts from a core that splits them into tokens,
    as the stage ``fit`` does.
    """
    cores = constants.cores
    found = {"static": Encoder("static vectors", constants.stages[EMBED].core_seconds(cores))}
    if model is not None:
        tokens = constants.tokens / model.tokens
        found["cores"] = Encoder("MiniLM on cores", model.stages[EMBED].core_seconds(model.cores) * tokens)
        found["gpus"] = Encoder("MiniLM on GPUs", constants.stages[FIT].core_seconds(cores), gpu=True)
    return found


def _store_bytes(constants: Constants) -> float:
    return sum(constants.bytes[name] for name in ("raw", "index", "database", "postings"))


def _memory(assumed: Assumptions) -> float:
    """Return MiB of a machine."""
    return assumed.memory * GIB / MIB


def _reached(grows: Line, value: float) -> float:
    """Return where a line reaches a value, infinity where it never does."""
    return (value - grows.fixed) / grows.slope if grows.slope else math.inf


def _chunks_in(constants: Constants, seconds: float, assumed: Assumptions) -> float:
    """Return of how many chunks one process makes a store in that time, by bisection."""
    low, high = 1.0, 1.0
    while alone_seconds(constants, high, assumed) < seconds:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if alone_seconds(constants, middle, assumed) < seconds else (low, middle)
    return low
