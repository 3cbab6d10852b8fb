"""Markdown tables, and the pages of results, in which each benchmark writes its own section."""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RESULTS = "results.md"


def write_section(title: str, paragraphs: Sequence[str], page: str = RESULTS) -> None:
    """Write the section with this title of a page: in place of the one that is there, or else at the end."""
    path = FOLDER / page
    head, *parts = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = {name: body.strip() for name, _, body in (part.partition("\n") for part in parts)}
    sections[title] = "\n\n".join(paragraphs)
    shown = [head.strip(), *(f"## {name}\n\n{body}" for name, body in sections.items())]
    path.write_text("\n\n".join(shown) + "\n", encoding="utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns except the first are right-aligned."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def significant(value: float, digits: int = 2) -> str:
    """Return ``value`` rounded to significant ``digits``, without an exponent: 0.0314 gives 0.031, 1234 gives 1200."""
    rounded = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded))) if rounded else 0
    return f"{rounded:.{max(0, digits - 1 - exponent)}f}"


def spread(values: Sequence[float]) -> str:
    """Return the median, followed by minimum and maximum in brackets if there are several values."""
    if not values:
        return "–"
    middle = significant(statistics.median(values), 3)
    return middle if len(values) == 1 else f"{middle} ({significant(min(values), 3)}–{significant(max(values), 3)})"


def of_medians(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the median of ``one`` divided by the median of ``other``."""
    return statistics.median(one) / statistics.median(other)


def times(ratio: float) -> str:
    """Return a ratio as text, with a multiplication sign."""
    return f"{significant(ratio, 3)} ×"


def per_cent(share: float) -> str:
    """Return a share as text in per cent."""
    return f"{significant(100 * share)} %"


def machine() -> str:
    """Return the processor, the number of cores, the system and the Python version."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{processor()}, {cores} cores, {platform.system()}, CPython {platform.python_version()}"


def processor() -> str:
    """Return the model of the processor; clouds hide its name, so family and model number are added if known."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text(encoding="utf-8").splitlines() if described.is_file() else []
    known: dict[str, str] = {}
    for key, _, value in (line.partition(":") for line in lines):
        known.setdefault(key.strip(), value.strip())
    if "model name" not in known:
        return platform.processor() or platform.machine()
    if {"cpu family", "model"} <= known.keys():
        return f"{known['model name']} (family {known['cpu family']}, model {known['model']})"
    return known["model name"]
