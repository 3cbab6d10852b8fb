"""GPUs: which are meant, how an index is laid out in their memory, and what is tried where that runs out.

Planning needs neither FAISS nor a GPU. Sizes are in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from ragembed.errors import ConfigError, GpuError

Placement = Literal["replicated", "sharded"]
T = TypeVar("T")

SHARE = 0.8
"""Of a GPU's free memory, how much is used; the rest is for what CUDA and cuBLAS take, and for fragmentation."""

MOST_SELECTED = 2048
"""Most neighbours, and most lists, that FAISS picks on a GPU."""

_GPUS = re.compile(r"gpu:([0-9]+(?:,[0-9]+)*)")
_FLOAT, _HALF, _ID = 4, 2, 8
_FOUND = _FLOAT + _ID
_BLOCK_BYTES, _MOST_ROWS, _LEAST_ROWS = 64 * 1024**2, 65_536, 64
_LIST_PADDING, _LIST_ALLOCATIONS = 32, 1024
"""Lists are padded to a multiple of 32 codes, and each takes two allocations of up to 512 bytes more."""
_TILE_ROWS, _TILE_ROWS_NARROW, _NARROW = 512, 1024, 32
_TILE_BYTES = ((4 * 1024**3, 512 * 1024**2), (8 * 1024**3, 768 * 1024**2))
_MOST_TILE_BYTES = 1024**3
"""How FAISS's brute-force search cuts its work up: faiss/gpu/impl/DistanceUtils.cuh, ``chooseTileSize``."""
_CODES_SCRATCH, _CODES_QUERIES = 512 * 1024**2, 8
"""And its search of product-quantised lists: faiss/gpu/impl/IVFUtils.cu, ``getIVFQueryTileSize``."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, by CUDA's number for it."""

    number: int
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Load:
    """What is to lie on GPUs, and what a search of it takes: made by :func:`flat_load` or :func:`lists_load`.

    Parameters
    ----------
    vectors, dim
        How many vectors, of which dimension.
    vector_bytes, half_bytes
        What one of them takes, and what it would in float16; None where float16 is not allowed.
    lists, list_bytes
        Inverted lists, 0 for a flat index, and what each takes on every GPU, however its vectors are placed.
    neighbours
        How many are searched for.
    query_bytes, scratch_bytes
        What a search takes for each query of a block, and once, besides comparing vectors by brute force.
    """

    vectors: int
    dim: int
    vector_bytes: int
    half_bytes: int | None = None
    lists: int = 0
    list_bytes: int = 0
    neighbours: int = 1
    query_bytes: int = 0
    scratch_bytes: int = 0


def flat_load(vectors: int, dim: int, *, neighbours: int = 1, half_allowed: bool = False) -> Load:
    """Return what ``vectors`` of dimension ``dim`` are that are searched by brute force.

    Such are the centroids that vectors are assigned to, with one neighbour.
    """
    half_bytes = _HALF * dim + _FLOAT if half_allowed else None
    return Load(vectors, dim, _FLOAT * dim + _FLOAT, half_bytes, neighbours=neighbours)


def lists_load(
    vectors: int,
    dim: int,
    *,
    code_bytes: int,
    lists: int,
    longest: int,
    probes: int,
    neighbours: int,
    residual: bool = False,
    codes: int = 0,
) -> Load:
    """Return what an index of inverted lists is.

    ``code_bytes`` is the size of a vector's code, ``longest`` the length of the longest list, ``probes`` how many of
    the lists are looked into for one query, ``residual`` whether codes are of residuals, and ``codes`` how many bytes a
    product quantiser makes of a vector, 0 where there is none. Codes are on a GPU what they are on the CPU.
    """
    query_bytes = probes * (neighbours * _FOUND + (_FLOAT * dim if residual else 0))
    scratch_bytes = 0
    if codes:
        tables = probes * codes * 256 * _FLOAT
        one = 2 * (probes * (_ID + _FLOAT * longest) + tables + _CODES_QUERIES * neighbours * _FOUND)
        query_bytes, scratch_bytes = 0, max(_CODES_SCRATCH, _CODES_QUERIES * one)
    return Load(
        vectors,
        dim,
        vector_bytes=code_bytes + _ID,
        lists=lists,
        list_bytes=_FLOAT * dim + _FLOAT + _LIST_PADDING * code_bytes + _LIST_ALLOCATIONS,
        neighbours=neighbours,
        query_bytes=query_bytes,
        scratch_bytes=scratch_bytes,
    )


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """How a load lies on GPUs and is searched there.

    Parameters
    ----------
    gpus, left_out
        The GPUs in use, and those that were to be but have too little memory free.
    placement
        ``replicated``: each GPU holds everything and takes a part of a block of queries; ``sharded``: each holds an
        equal part of the vectors and takes all queries.
    half
        Whether vectors are kept in float16.
    load
        What is placed.
    block_rows
        How many queries are searched for at once.
    """

    gpus: tuple[Gpu, ...]
    left_out: tuple[Gpu, ...]
    placement: Placement
    half: bool
    load: Load
    block_rows: int

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Of each GPU, the position of the first of its vectors, and the one after its last."""
        total, count = self.load.vectors, len(self.gpus)
        if self.placement == "replicated":
            return ((0, total),) * count
        return tuple((total * i // count, total * (i + 1) // count) for i in range(count))

    @property
    def held_bytes(self) -> int:
        """What a GPU holds of the load, at most."""
        load = self.load
        each = load.half_bytes if self.half and load.half_bytes is not None else load.vector_bytes
        return self._most_held * each + load.lists * load.list_bytes

    @property
    def page_bytes(self) -> int:
        """Size of the queries of a block that one GPU gets."""
        return _FLOAT * self._device_rows * self.load.dim

    @property
    def temp_bytes(self) -> int:
        """What is set aside on each GPU for a block: its queries twice over, a tile of their scores, what is found."""
        load, rows = self.load, self._device_rows
        preferred = _TILE_ROWS_NARROW if load.dim <= _NARROW else _TILE_ROWS
        compared = max(1, load.lists or self._most_held)
        element = _HALF if self.half else _FLOAT
        columns = min(compared, self._tile_bytes // (2 * element) // preferred)
        found = -(-compared // columns) * load.neighbours * _FOUND
        tiles = 2 * min(rows, preferred) * (_FLOAT * columns + found)
        queries = 2 * self.page_bytes + (self.page_bytes // 2 if self.half else 0)
        return queries + tiles + rows * (load.neighbours * _FOUND + load.query_bytes) + load.scratch_bytes

    @property
    def device_bytes(self) -> int:
        """What is taken of each GPU's memory, at most."""
        return self.held_bytes + self.temp_bytes

    def fits(self) -> bool:
        """Tell whether :data:`SHARE` of what each of the GPUs has free is enough."""
        return all(self.device_bytes <= budget(gpu) for gpu in self.gpus)

    def describe(self) -> str:
        """Return the plan in one line."""
        load, number = self.load, len(self.gpus)
        what = f"{load.vectors:,} vectors of dimension {load.dim}"
        how = " in float16" if self.half else ""
        where = f"on {_named(self.gpus)}"
        if number > 1:
            where += ", all of them on each" if self.placement == "replicated" else f", 1/{number} of them on each"
        if self.left_out:
            where += f" ({_named(self.left_out)} left out: too little memory free)"
        return (
            f"{what}{how} {where}; {_size(self.held_bytes)} each, and {_size(self.temp_bytes)} "
            f"to search for {self.block_rows:,} at a time"
        )

    @property
    def _most_held(self) -> int:
        return max(stop - start for start, stop in self.ranges)

    @property
    def _device_rows(self) -> int:
        return -(-self.block_rows // len(self.gpus)) if self.placement == "replicated" else self.block_rows

    @property
    def _tile_bytes(self) -> int:
        total = max(gpu.total_bytes for gpu in self.gpus)
        return next((size for most, size in _TILE_BYTES if total <= most), _MOST_TILE_BYTES)


def budget(gpu: Gpu) -> int:
    """Return how much of a GPU's memory may be taken."""
    return int(SHARE * gpu.free_bytes)


def choose_gpus(asked: str, visible: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return those of the GPUs that are ``asked`` for, none for the CPU.

    ``asked`` is ``auto`` (all that there are, if any), ``cpu``, ``gpu`` (all, and at least one), or ``gpu:0,2`` (these,
    in this order). Raises :class:`ConfigError` for anything else, :class:`GpuError` for a GPU that there is not.
    """
    if asked == "auto":
        return tuple(visible)
    if asked == "cpu":
        return ()
    match = _GPUS.fullmatch(asked)
    if asked != "gpu" and match is None:
        raise ConfigError(f"unknown device {asked!r}: expected auto, cpu, gpu, or numbers of GPUs as in gpu:0,2")
    if not visible:
        raise GpuError(
            f"{asked} was asked for, but FAISS sees no GPU: install its build for GPUs in place of faiss-cpu "
            "(pip install 'ragembed[gpu]') and NVIDIA's driver, or ask for cpu"
        )
    if match is None:
        return tuple(visible)
    numbers = [int(number) for number in match[1].split(",")]
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"{asked} names a GPU twice: expected each number once")
    by_number = {gpu.number: gpu for gpu in visible}
    absent = [str(number) for number in numbers if number not in by_number]
    if absent:
        raise GpuError(f"{asked} was asked for, but there is no GPU {', '.join(absent)}: there is {_named(visible)}")
    return tuple(by_number[number] for number in numbers)


def describe_choice(asked: str, gpus: Sequence[Gpu]) -> str:
    """Return in a few words what :func:`choose_gpus` made of ``asked``."""
    if gpus:
        return f"on {_named(gpus)}"
    return "on the CPU" if asked == "cpu" else "on the CPU, as FAISS sees no GPU"


def plan_gpus(gpus: Sequence[Gpu], load: Load, block_rows: int | None = None) -> GpuPlan:
    """Return how ``load`` is best placed on ``gpus``, of which there is at least one.

    Replicated if each has room for everything, else sharded; without the GPUs that have too little room even so; and
    in float16, where that is allowed, only if nothing else fits. Up to ``block_rows`` queries are searched for at once,
    by default 64 MiB or 65,536 of them, fewer where memory is short. Raises :class:`GpuError` if it cannot be placed.
    """
    rows = block_rows or min(_MOST_ROWS, max(_LEAST_ROWS, _BLOCK_BYTES // (_FLOAT * load.dim)))
    least: GpuPlan | None = None
    for candidate in _candidates(gpus, load, rows):
        plan: GpuPlan | None = candidate
        while plan is not None:
            if plan.fits():
                return plan
            if least is None or plan.device_bytes < least.device_bytes:
                least = plan
            plan = smaller(plan)
    if least is None:
        raise ConfigError("there is no GPU to plan for: expected at least one")
    free = ", ".join(f"{_size(budget(gpu))} of GPU {gpu.number}" for gpu in gpus)
    raise GpuError(
        f"{load.vectors:,} vectors of dimension {load.dim} do not fit on {_named(gpus)}: {_size(least.device_bytes)} "
        f"or more would be needed on each of {len(least.gpus)}, and {free} may be used ({SHARE:.0%} of what is free); "
        "free memory there, use more GPUs, or use the CPU"
    )


def _candidates(gpus: Sequence[Gpu], load: Load, rows: int) -> Iterator[GpuPlan]:
    by_room = sorted(gpus, key=budget, reverse=True)
    for half in (False,) if load.half_bytes is None else (False, True):
        for count in range(len(gpus), 0, -1):
            kept = {gpu.number for gpu in by_room[:count]}
            used = tuple(gpu for gpu in gpus if gpu.number in kept)
            left_out = tuple(gpu for gpu in gpus if gpu.number not in kept)
            yield GpuPlan(used, left_out, "replicated", half, load, rows)
            if count > 1:
                yield GpuPlan(used, left_out, "sharded", half, load, rows)


def smaller(plan: GpuPlan) -> GpuPlan | None:
    """Return the plan with half as many queries at once, which takes less memory; None where there are few already."""
    if plan.block_rows <= _LEAST_ROWS:
        return None
    return replace(plan, block_rows=max(_LEAST_ROWS, plan.block_rows // 2))


def with_retry(plan: GpuPlan, run: Callable[[GpuPlan], T]) -> tuple[T, GpuPlan]:
    """Return what ``run`` makes of ``plan``, or of the first smaller one that memory suffices for, and that plan.

    Raises :class:`GpuError` where it does not suffice for the smallest. Other errors of ``run`` go through.
    """
    while True:
        try:
            return run(plan), plan
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            reason = str(error).strip()
        # Only here is what the failed run held on the GPUs let go of: the error's traceback kept it.
        reduced = smaller(plan)
        if reduced is None:
            raise GpuError(
                f"memory ran out on {_named(plan.gpus)} even with {plan.block_rows} queries at a time: free memory "
                f"there, use more GPUs, or use the CPU ({reason})"
            )
        plan = reduced


def _out_of_memory(error: RuntimeError) -> bool:
    text = str(error).lower()
    return "out of memory" in text or "cudaerrormemoryallocation" in text


def _named(gpus: Sequence[Gpu]) -> str:
    numbers = ", ".join(str(gpu.number) for gpu in gpus)
    return f"GPU {numbers}" if len(gpus) == 1 else f"GPUs {numbers}"


def _size(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 else f"{count / 1024**2:.1f} MiB"
