"""The tables of docs/scale.md: what 10 million, 1 billion and 10 billion chunks need, and what ends first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from report import significant, table

from ragembed.distributed.work import EMBED, READ
from scaling.assumptions import Assumptions
from scaling.checking import with_mishaps
from scaling.constants import Constants, constants_of, sorting
from scaling.model import (
    ALONE,
    MIB,
    Encoder,
    Fleet,
    Plan,
    Shards,
    alone_seconds,
    bandwidth,
    encoders,
    limits,
    plan,
    shards,
)
from scaling.records import Part

SIZES = {10_000_000: Fleet(1, 1), 1_000_000_000: Fleet(16, 1), 10_000_000_000: Fleet(128, 1)}
"""Chunks, and the machines that are planned for them, each with a GPU where one is used."""

NOTHING = "Nothing was measured yet: `python benchmarks/scale.py` measures, and writes the tables here."

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def planned(parts: Mapping[str, Part], assumed: Assumptions | None = None) -> str:
    """Return all tables, or a sentence where there is nothing to compute them from."""
    assumed = assumed or Assumptions()
    if "rows" not in parts:
        return NOTHING
    constants = constants_of(parts["rows"])
    model = constants_of(parts["model"]) if "model" in parts else None
    kinds = encoders(constants, model)
    return "\n\n".join(
        [
            f"### Measured\n\n{_measured(constants, model)}",
            f"### Assumed\n\n{_assumed(assumed)}",
            f"### Planned\n\n{_sizes(constants, kinds, assumed)}",
            f"### What ends first\n\n{_limits(constants, assumed)}",
        ]
    )


def _measured(constants: Constants, model: Constants | None) -> str:
    cores = constants.cores
    rows = [
        [f"`{name}`", significant(1e6 * cost.core_seconds(cores), 3), significant(cost.startup), f"{cost.memory:.0f}"]
        for name, cost in constants.stages.items()
    ]
    if model is not None:
        cost = model.stages[EMBED]
        each = 1e6 * cost.core_seconds(model.cores) * constants.tokens / model.tokens
        rows.append(["`embed`, MiniLM", significant(each, 3), significant(cost.startup), f"{cost.memory:.0f}"])
    alone, worker = constants.alone, constants.worker
    each = 1e6 * alone.slope * sorting(constants.chunks) / constants.chunks
    rows.append([f"the driver alone, {constants.chunks:,} chunks", significant(each, 3), significant(alone.fixed), ""])
    header = ["stage", "µs of a core for a chunk", "s once", "MiB of a worker, with pages of files"]
    sizes = ", ".join(f"{name} {value:,.0f}" for name, value in constants.bytes.items())
    about = (
        f"Of a chunk of {constants.tokens:.0f} tokens, on {constants.machine}, all cores busy, {constants.date}. Bytes "
        f"of a chunk: {sizes}. The driver has {constants.driver.fixed:.0f} MiB, and "
        f"{MIB * constants.driver.slope:,.0f} bytes more for each chunk; a worker has {worker.fixed:.0f} MiB, and "
        f"{MIB * worker.slope:,.0f} bytes for each chunk, without the pages of files."
    )
    return f"{about}\n\n{table(header, rows)}"


def _assumed(assumed: Assumptions) -> str:
    return table(["", "value"], [[what, f"{value:,.10g} {unit}".strip()] for what, value, unit in assumed.described()])


def _sizes(constants: Constants, kinds: Mapping[str, Encoder], assumed: Assumptions) -> str:
    first = next(iter(kinds.values()))
    one = [plan(constants, first, size, fleet, assumed, one_store=True) for size, fleet in SIZES.items()]
    several = [plan(constants, first, size, fleet, assumed, one_store=False) for size, fleet in SIZES.items()]
    found = [shards(constants, each.chunks, each.stores, assumed) for each in several]
    rows = [
        _row("machines × cores", one, lambda each: f"{each.fleet.machines} × {assumed.cores:.0f}"),
        _row("shards of documents (tasks of `read`)", one, lambda each: f"{each.tasks[READ]:,}"),
        _row("blocks (tasks of `embed`)", one, lambda each: f"{each.tasks[EMBED]:,}"),
        _row("documents", one, lambda each: _bytes(each.source)),
        _row("work folder", one, lambda each: _bytes(each.work)),
        _row("store", one, lambda each: _bytes(each.store)),
        _row("over the network", one, lambda each: _bytes(each.network)),
        _row("at the assumed rate", one, lambda each: _hours(each.network / bandwidth(each.fleet, assumed) / 3600)),
        _row("**one store**: memory of the driver", one, lambda each: _mib(each.driver)),
        _row("memory of a worker", one, lambda each: _mib(each.worker)),
        _row("the driver alone", one, lambda each: _hours(each.seconds[ALONE] / 3600)),
        *_in_all(constants, kinds, assumed, one_store=True),
        _row("that alone, of all the time, static vectors", one, lambda each: f"{each.alone:.0%}"),
        _row("**several stores** (not built): stores", several, lambda each: f"{each.stores:,}"),
        _row("memory of the driver of each", several, lambda each: _mib(each.driver)),
        _row("memory of a worker", several, lambda each: _mib(each.worker)),
        _row("drivers alone, side by side", several, lambda each: _hours(each.seconds[ALONE] / 3600)),
        *_in_all(constants, kinds, assumed, one_store=False),
        _simulated(constants, kinds, assumed),
        _row("**searching**: memory of a shard", found, lambda each: _mib(each.memory)),
        _row("machines that hold all shards in memory", found, lambda each: f"{each.machines:,}"),
        *(_answers(mode, found) for mode in found[0].milliseconds),
    ]
    return table(["", *(f"{size:,} chunks" for size in SIZES)], rows)


def _row(name: str, values: Sequence[Plan] | Sequence[Shards], show: Callable[..., str]) -> list[str]:
    return [name, *(show(value) for value in values)]


def _in_all(
    constants: Constants, kinds: Mapping[str, Encoder], assumed: Assumptions, *, one_store: bool
) -> list[list[str]]:
    rows = []
    for kind in kinds.values():
        plans = [plan(constants, kind, size, fleet, assumed, one_store=one_store) for size, fleet in SIZES.items()]
        rows.append(_row(f"in all, {kind.name}", plans, lambda each: _hours(each.hours)))
        if one_store:
            rows.append(
                _row(
                    f"blocks written a second, {kind.name}",
                    plans,
                    lambda each: _rate(each.tasks[EMBED], each.seconds[EMBED]),
                )
            )
    return rows


def _simulated(constants: Constants, kinds: Mapping[str, Encoder], assumed: Assumptions) -> list[str]:
    kind = list(kinds.values())[-1]
    hours = [
        with_mishaps(plan(constants, kind, size, fleet, assumed, one_store=False), constants, kind, assumed, seed=0)
        for size, fleet in SIZES.items()
    ]
    return [f"the same, {kind.name}, simulated with slow tasks and lost workers", *map(_hours, hours)]


def _answers(mode: str, found: Sequence[Shards]) -> list[str]:
    return [f"a {mode} question, ms", *(significant(each.milliseconds[mode], 3) for each in found)]


def _limits(constants: Constants, assumed: Assumptions) -> str:
    rows = []
    for one in limits(constants, assumed):
        if one.chunks < float("inf"):
            hours = _hours(alone_seconds(constants, one.chunks, assumed) / 3600)
            rows.append([one.what, _count(one.chunks), hours])
    return table(["the end of", "chunks", "hours of the driver alone"], rows)


def _count(chunks: float) -> str:
    """Return a number of chunks, to two digits."""
    for power, name in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if chunks >= power:
            return f"{significant(chunks / power)} {name}"
    return f"{chunks:,.0f}"


def _bytes(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{significant(size, 3)} {unit}"
        size /= 1000
    return f"{significant(size, 3)} {_UNITS[-1]}"


def _rate(count: float, seconds: float) -> str:
    rate = count / seconds
    return f"{rate:,.0f}" if rate >= 100 else significant(rate)


def _mib(size: float) -> str:
    return f"{size:.0f} MiB" if size < 10_000 else f"{significant(size / 1024, 3)} GiB"


def _hours(hours: float) -> str:
    return f"{significant(hours)} h" if hours < 1000 else f"{significant(hours / 24)} days"
