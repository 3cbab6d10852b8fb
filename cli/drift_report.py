"""Printing what ``ragembed status --drift`` found."""

from __future__ import annotations

from collections.abc import Mapping

from ragembed.cli.output import print_json, print_jsonl, say
from ragembed.indexes.drift import DriftReport, IdfShift, Verdict, Vocabulary

EXIT: Mapping[Verdict, int] = {"keep": 0, "refit": 3, "rebuild": 4}
"""The exit status that tells what is to be done."""

_TODO: Mapping[Verdict, str] = {
    "keep": "nothing is to be done",
    "refit": "run: ragembed refit",
    "rebuild": "delete the store and index again",
}


def print_drift(report: DriftReport, output: str) -> None:
    """Print the report as ``text``, ``json`` or ``jsonl``."""
    if output == "json":
        print_json(report.to_dict())
    elif output == "jsonl":
        print_jsonl([report.to_dict()])
    else:
        for name, value in _lines(report):
            say(f"{name:<15}{value}")
        for note in report.notes:
            say(f"note: {note}", err=True)


def _lines(report: DriftReport) -> list[tuple[str, str]]:
    lines = [("verdict", f"{report.verdict}: {'; '.join([*report.reasons, _TODO[report.verdict]])}")]
    changes = "" if report.added is None else f", {report.added:,} added and {report.removed:,} removed since the fit"
    lines.append(("vectors", f"{report.vectors:,}{changes}"))
    if report.vocabulary is not None:
        lines += _vocabulary(report.vocabulary, report)
    if report.movers:
        lines.append(("idf movers", ", ".join(_mover(mover) for mover in report.movers)))
    if report.weight_shift is not None:
        lines.append(("token weights", f"{report.weight_shift:.1%} of a text's weight would move to other tokens"))
    if report.unfitted is not None:
        lines.append(("static vectors", f"{report.unfitted:.1%} of the tokens have none that was fitted"))
    if report.mean_shift is not None:
        lines.append(("mean shift", f"{report.mean_shift:.3f} spreads of the vectors"))
    if report.overlap is not None:
        among = f"{report.queries:,} pseudo-queries in {report.searched:,} vectors"
        chance = f"by chance {report.chance:.3f}"
        lines.append(("overlap@10", f"{report.overlap:.3f} with what a refit would find ({chance}), {among}"))
    return lines


def _vocabulary(found: Vocabulary, report: DriftReport) -> list[tuple[str, str]]:
    where = "of those added" if report.added else "of all"
    expected = f"{found.expected:.1%} expected of more of the same"
    lines = [
        ("counted", f"tokens of {report.texts:,} texts"),
        ("unseen tokens", f"{found.unseen:.1%} {where} ({expected})"),
    ]
    for name, now, fitted in (
        ("unknown tokens", found.unknown, found.unknown_fitted),
        ("word pieces", found.pieces, found.pieces_fitted),
    ):
        if now is not None and fitted is not None:
            lines.append((name, f"{now:.1%} {where} ({fitted:.1%} at the fit)"))
    return lines


def _mover(mover: IdfShift) -> str:
    return f"{mover.token} {mover.fitted:.1f} → {mover.now:.1f}"
