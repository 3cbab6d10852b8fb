"""Measure how long ``ragembed doctor`` takes for healthy stores of two sizes, by check, and its memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data import Setting, write_generated_texts
from processes import in_new_process
from report import significant, table
from speed import Outcome

import ragembed
from ragembed import EmbedderConfig
from ragembed.indexes.doctor import diagnosis as diagnosing

_SECTIONS, _WORDS = 50, 150
_SHOWN = 0.05
"""Seconds from which a check has a row of its own."""


def doctor(setting: Setting) -> Outcome:
    """Diagnose stores with random embeddings, made from Markdown files of fifty sections."""
    sizes = [setting.choose(size, size // 100) for size in (15_000, 150_000)]
    found, chunks = [], []
    for size in sizes:
        folder = setting.folder / f"{size}"
        _write(setting, folder / "docs", size)
        config = EmbedderConfig.from_preset("re", postprocess=("center", "normalize"))
        report = ragembed.index(folder / "docs", folder / "store", embedder=config)
        chunks.append(f"{report.chunks:,} chunks")
        found.append(in_new_process(_diagnosed, folder / "store"))
    names = [name for name in found[-1][0] if max(seconds[name] for seconds, _, _ in found) >= _SHOWN]
    rows = [[name, *(significant(seconds[name]) for seconds, _, _ in found)] for name in names]
    rows.append(["everything", *(significant(sum(seconds.values())) for seconds, _, _ in found)])
    rows.append(["peak memory in MB", *(f"{megabytes:,.0f}" for _, megabytes, _ in found)])
    about = (
        f"Seconds of each check of `ragembed doctor`, without the start of Python, for chunks of about {_WORDS} words "
        f"in files of {_SECTIONS} sections, with random embeddings. Memory includes mapped files. Findings: "
        f"{', '.join(found[-1][2]) or 'none'}."
    )
    return Outcome([about, table(["check", *chunks], rows)])


def _write(setting: Setting, folder: Path, size: int) -> None:
    cache = setting.cache / f"doctor-{size}"
    write_generated_texts(setting, cache, size, _WORDS)
    texts = (cache / "texts.txt").read_text(encoding="utf-8").splitlines()
    folder.mkdir(parents=True)
    for start in range(0, size, _SECTIONS):
        sections = (f"## Section {start + i}\n\n{text}\n" for i, text in enumerate(texts[start : start + _SECTIONS]))
        (folder / f"{start}.md").write_text("\n".join(sections), encoding="utf-8")


def _diagnosed(store: Path) -> tuple[dict[str, float], float, list[str]]:
    """Return the seconds of each check, the peak memory in MB, and the ids of the findings."""
    seconds: dict[str, float] = {}

    def timed(name: str, check: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            started = time.perf_counter()
            result = check(*arguments)
            result = iter(list(result)) if isinstance(result, Iterator) else result
            seconds[name] = time.perf_counter() - started
            return result

        return call

    diagnosing.verify_snapshot = timed(diagnosing.INTEGRITY, diagnosing.verify_snapshot)
    diagnosing.CHECKS = {name: timed(name, check) for name, check in diagnosing.CHECKS.items()}
    diagnosis = diagnosing.diagnose(store)
    assert not diagnosis.not_run, diagnosis.not_run
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, [each.id for each in diagnosis.findings]
