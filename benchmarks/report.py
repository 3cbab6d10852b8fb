"""The page of results: each benchmark owns a section of it, between two markers, and leaves the rest alone."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results.md"

_HEADING = "# Results\n\nWritten by the benchmarks; how to run them is in [README.md](README.md).\n"


def write_section(name: str, body: str, path: Path = RESULTS) -> None:
    """Put ``body`` into the section ``name`` of the page at ``path``, or at its end where it has no such section."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    page = path.read_text(encoding="utf-8") if path.is_file() else _HEADING
    section = f"{begin}\n{body.strip()}\n{end}"
    counts = page.count(begin), page.count(end)
    if counts == (0, 0):
        page = f"{page.rstrip()}\n\n{section}\n"
    elif counts == (1, 1) and page.index(begin) < page.index(end):
        before, rest = page.split(begin)
        page = before + section + rest.split(end)[1]
    else:
        raise ValueError(f"{path} has {counts[0]} of {begin} and {counts[1]} of {end}: expected one of each, in order")
    path.write_text(page, encoding="utf-8")


def read_section(name: str, path: Path = RESULTS) -> str | None:
    """Return what :func:`write_section` wrote under ``name``, None where there is no such section."""
    begin, end = f"<!-- {name} begin -->", f"<!-- {name} end -->"
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    if begin not in page:
        return None
    return page.partition(begin)[2].partition(end)[0].strip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns but the first are aligned to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def significant(value: float, digits: int = 2) -> str:
    """Return ``value`` rounded to ``digits`` significant digits, without an exponent.

    >>> [significant(value) for value in (0.0314, 0.999, 1.04, 9.96, 12.3, 1234.0, 0.0)]
    ['0.031', '1.0', '1.0', '10', '12', '1200', '0.0']
    """
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded))) if rounded else 0
    return f"{rounded:.{max(0, digits - 1 - exponent)}f}"


def machine() -> str:
    """Return the model of the processor, the number of cores, the system and the Python version."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{processor()}, {cores} cores, {platform.system()}, {python}"


def processor() -> str:
    """Return the model of the processor."""
    described = Path("/proc/cpuinfo")
    if described.is_file():
        for line in described.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
