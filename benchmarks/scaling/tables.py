"""What is shown of measured and of simulated runs, on the page of results."""

from __future__ import annotations

from collections.abc import Mapping

from report import significant, table

from ragembed.distributed.work import STAGES
from scaling.checking import TOLERANCE, Checked, check
from scaling.parts import PARTS
from scaling.records import Part, Run

_ABOUT = """\
`ragembed index` from nothing as one process, and in stages by 1, 2 and 4 workers (`--workers N`), with documents, work
folder and store on one disk: the median of three runs at the smallest size, one run at the others. Memory is what a
process has for itself (`RssAnon`, sampled). What a chunk costs, and what follows for other sizes, is in
[docs/scale.md](../docs/scale.md)."""

_CHECKED = f"""\
Each stage is simulated task by task, by costs that are lines through the runs of one worker at the smallest and the
largest size that one worker did (`costs`), and by how much slower a task is where several workers are busy, which the
runs at that larger size give (`slowing`). Runs without either are predicted. The check fails above {TOLERANCE:.0%}."""

_MOST_MEMORY = 4096
"""MiB of a worker, at the most."""


def results(parts: Mapping[str, Part]) -> str:
    """Return the section of all parts."""
    bodies = [_part(PARTS[name].title, parts[name]) for name in PARTS if name in parts]
    return "\n\n".join(["## Scale", _ABOUT, *bodies, "### Simulated", _CHECKED, simulated(parts)])


def simulated(parts: Mapping[str, Part]) -> str:
    """Return the table of measured and simulated times."""
    header = ["corpus", "chunks", "workers", "measured, s", "simulated, s", "error", "gave"]
    checked = [one for name in PARTS if name in parts for one in check(name, parts[name])]
    return table(header, [_checked(one) for one in checked])


def memory(part: Part) -> str:
    """Return the sentences on how the memory of a worker and of the driver grows, and on their limit."""
    staged = [run for run in part.staged if run.workers_memory]
    few, many = (pick(staged, key=lambda run: run.chunks) for pick in (min, max))
    grown = significant(max(many.workers_memory) / max(few.workers_memory), 3)
    times = significant(many.chunks / few.chunks, 3)
    most = max(max(run.workers_memory) for run in staged)
    kept = "all are" if most <= _MOST_MEMORY else "**not all are**"
    return (
        f"From {few.chunks:,} to {many.chunks:,} chunks, {times} times as many, the memory of a worker is {grown} "
        f"times as much, that of the driver {significant(many.driver / few.driver, 3)} times. Workers have at most "
        f"{most:.0f} MiB: {kept} below {_MOST_MEMORY:,}."
    )


def _part(title: str, part: Part) -> str:
    when = f"{part.date}; {part.machine}; load average {part.load:.1f} at the start."
    texts = f"{part.about} {part.runs[-1].tokens:.0f} tokens a chunk."
    return "\n\n".join([f"### {title}", texts, _runs(part), _stages(part), memory(part), when])


def _runs(part: Part) -> str:
    header = ["chunks", "workers", "s", "chunks/s", "÷ the single process's", "driver, MiB", "worker, most, MiB"]
    header += ["with pages of files, most, MiB", "work folder, bytes a chunk", "store, bytes a chunk"]
    rows = []
    for run in part.runs:
        single = next((one for one in part.runs if one.chunks == run.chunks and not one.workers), None)
        faster = f"{significant(single.seconds / run.seconds, 3)} ×" if single and run.workers else ""
        kept = sum(run.bytes[name] for name in ("raw", "index", "database", "postings"))
        rows.append(
            [
                f"{run.chunks:,}",
                str(run.workers) if run.workers else "single process",
                significant(run.seconds, 3),
                significant(run.chunks / run.seconds, 3),
                faster,
                f"{run.driver:.0f}",
                f"{max(run.workers_memory):.0f}" if run.workers_memory else "",
                f"{run.resident:.0f}",
                f"{run.bytes['work'] / run.chunks:,.0f}" if run.workers else "",
                f"{kept / run.chunks:,.0f}",
            ]
        )
    return table(header, rows)


def _stages(part: Part) -> str:
    header = ["chunks", "workers", *(f"`{name}`, s" for name in STAGES), "the driver alone, s", "tasks"]
    rows = []
    for run in part.staged:
        stages = [run.stage(name) for name in STAGES]
        cells = [significant(seconds, 3) for seconds in (*(stage.seconds for stage in stages), run.alone)]
        cells += [" / ".join(f"{stage.tasks:,}" for stage in stages), _busy(run)]
        rows.append([f"{run.chunks:,}", str(run.workers), *cells])
    return table([*header, "µs of workers a chunk"], rows)


def _busy(run: Run) -> str:
    return " / ".join(significant(1e6 * run.stage(name).busy / run.chunks, 3) for name in STAGES)


def _checked(one: Checked) -> list[str]:
    error = f"{one.error:+.0%}" if one.near else f"**{one.error:+.0%}**"
    run = one.run
    shown = [one.part, f"{run.chunks:,}", str(run.workers), significant(run.seconds, 3)]
    return [*shown, significant(one.simulated, 3), error, one.gave]
