"""What an index costs, before it is built: bytes, and milliseconds a query, by a model of few constants.

The constants of scanning are measured on the machine at hand (:mod:`ragembed.indexes.ann.machine`); the others were
measured once, on 80,000 and a million vectors of dimension 384, and say no more than the order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ragembed.indexes.ann.specs import IndexSpec, codes_for, lists_for

_ID_BYTES, _LINK_BYTES = 8, 285
_VISITED, _VISIT_NS, _RANDOM_NS_PER_BYTE = 2_000, 60.0, 0.2
_PROBED_SHARE = 0.05
_CODE_NS = 0.45
_RANKING_MS = 0.1


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine can do: nanoseconds for one number of a vector in float32 and float16, and memory in bytes."""

    flat_ns: float
    half_ns: float
    memory: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes of an index, milliseconds that one query takes in one thread, and bytes that building it needs at once."""

    bytes: int
    latency_ms: float
    building_bytes: int


def cost(spec: IndexSpec, rows: int, dim: int, machine: Machine) -> Cost:
    """Estimate the cost of an index of a kind that has a name, for ``rows`` vectors of dimension ``dim``."""
    size = rows * (_BYTES[spec.name](dim) + _ID_BYTES)
    number_ns = {"flat": machine.flat_ns, "ivf": machine.flat_ns}.get(spec.name, machine.half_ns)
    if spec.family == "graph":
        visit = _VISIT_NS + _RANDOM_NS_PER_BYTE * _BYTES[spec.name](dim)
        return Cost(size + rows * _LINK_BYTES, _ms(_VISITED * visit, spec), size + rows * _LINK_BYTES)
    if spec.family == "exhaustive":
        return Cost(size, _ms(rows * dim * number_ns, spec), 0)
    lists = lists_for(rows)
    vector_ns = codes_for(dim) * _CODE_NS if spec.name == "ivf-pq" else dim * number_ns
    scanned = lists * dim * machine.flat_ns + _PROBED_SHARE * rows * vector_ns
    return Cost(size + lists * dim * 4, _ms(scanned, spec), 0)


def cost_in_shards(spec: IndexSpec, rows: int, dim: int, machine: Machine, shards: int) -> Cost:
    """Estimate the cost of an index in ``shards``, which one thread searches, and builds, one after the other."""
    each = cost(spec, math.ceil(rows / shards), dim, machine)
    return Cost(shards * each.bytes, shards * each.latency_ms, each.building_bytes)


def _ms(nanoseconds: float, spec: IndexSpec) -> float:
    return nanoseconds / 1e6 + (0.0 if spec.lossless else _RANKING_MS)


_BYTES: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {
        "flat": lambda dim: 4 * dim,
        "fp16": lambda dim: 2 * dim,
        "hnsw": lambda dim: 4 * dim,
        "hnsw-sq8": lambda dim: dim,
        "ivf": lambda dim: 4 * dim,
        "ivf-sq8": lambda dim: dim,
        "ivf-pq": codes_for,
    }
)
"""Bytes of a vector's code."""
