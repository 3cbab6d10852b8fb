"""``ragembed tune``."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragembed.cli.options import (
    EXISTING_FILE,
    WritingCommand,
    device_option,
    format_option,
    quiet_option,
    store_option,
)
from ragembed.cli.output import counted, print_record, say, warnings_as_notes
from ragembed.cli.pages import check_html, html_option
from ragembed.cli.progress import StderrProgress
from ragembed.cli.project import choose_store
from ragembed.indexes.types import Progress, SilentProgress
from ragembed.printable import printable, printable_line

if TYPE_CHECKING:
    from ragembed.indexes.tuning import Candidate, Compared, TuningReport

_SHOWN = 10
_WIDEST_LABEL = 60


@click.command(name="tune", cls=WritingCommand)
@store_option
@click.option(
    "--queries",
    type=EXISTING_FILE,
    help="File with your own queries. Each line has a query, a tab, and the file or chunk id that answers it; or is a "
    "JSON object with the keys query and path, or query and id.",
)
@click.option(
    "--refit-only",
    is_flag=True,
    help="Compare only settings that do not need documents to be encoded again; much faster.",
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="Seed of the random samples."
)
@click.option(
    "--apply", "apply_best", is_flag=True, help="Apply the chosen settings to the store if they are (probably) better."
)
@html_option
@device_option
@quiet_option
@partial(format_option, more={"csv": "csv (one line per candidate)"})
def command(
    store: Path | None,
    queries: Path | None,
    refit_only: bool,
    seed: int,
    apply_best: bool,
    html: Path | None,
    device: str | None,
    wait_seconds: float,
    quiet: bool,
    output: str,
) -> None:
    """Find better search settings without labels.

    \b
    ragembed tune --refit-only
    ragembed tune --refit-only --apply

    Sentences, headings, titles, links and other parts of the documents serve as queries for the chunks that they come
    from. Layers, token weights, templates, post-processors and fusion are chosen on one half of the documents and
    tested on the other half. The report ends with the outcome, and with what tuning can decide. Nothing changes without
    --apply.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    from ragembed.indexes.tuning import tune_store
    from ragembed.indexes.tuning.report import APPLICABLE

    check_html(html)
    progress: Progress = SilentProgress() if quiet else StderrProgress()
    with warnings_as_notes():
        report = tune_store(
            choose_store(store),
            queries=queries,
            seed=seed,
            encode=not refit_only,
            apply=apply_best,
            device=device,
            progress=progress,
            wait_seconds=wait_seconds,
        )
    if html is not None:
        from ragembed.reports.page import write_page
        from ragembed.reports.results import tuning_page

        write_page(html, tuning_page(report.to_dict()))
    if output == "csv":
        click.echo(printable(_csv(report)), nl=False)
    elif not print_record(report.to_dict(), output):
        click.echo("\n".join(map(printable_line, _text(report))))
        if report.outcome in APPLICABLE and not report.applied and not quiet:
            given = {"--store": store, "--queries": queries, "--device": device, "--seed": seed or None}
            words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
            flags = ["--refit-only"] if refit_only else []
            say(f"to apply these settings: ragembed tune {shlex.join([*words, *flags, '--apply'])}", err=True)


def _text(report: TuningReport) -> Iterator[str]:
    from ragembed.evaluation.table import aligned
    from ragembed.indexes.tuning.report import LIMITS, MEAN

    sampled = ", ".join(
        f"{name} {sum(counts)}" + ("" if name in report.used else " (too few)")
        for name, counts in report.queries.items()
        if sum(counts)
    )
    yield (
        f"{report.pool:,} of {counted(report.chunks, 'chunk')}, {counted(report.documents, 'document')}; "
        f"queries: {sampled or 'none'}"
    )
    if report.candidates:
        names = [*report.used, MEAN]
        yield ""
        yield (
            f"nDCG@10 of {len(report.candidates)} settings on one half of the documents; in brackets the difference "
            "from the present settings, with its 95 % interval"
        )
        yield ""
        everything = not sys.stdout.isatty()
        shown = list(report.candidates if everything else report.candidates[:_SHOWN])
        shown += [each for each in report.candidates if each.label == "now" and each not in shown]
        yield from aligned(
            [
                ["", *names, "dense alone"],
                *(
                    [
                        each.label if everything else _short(each.label),
                        *(_cell(each, name) for name in names),
                        f"{each.dense[MEAN]:.1f}",
                    ]
                    for each in shown
                ),
            ]
        )
    if report.chosen is not None:
        yield ""
        yield f"the settings chosen: {report.chosen.label}"
        yield ""
        rows = {**report.held_out, "mean, dense alone": report.held_out_dense[MEAN]}
        yield from aligned([["", "queries", "now", "tuned", "difference"], *(_row(*row) for row in rows.items())])
    yield ""
    yield f"{report.outcome}: {report.reason}"
    if report.candidates:
        yield ""
        yield "How far to trust this:"
        yield from (f"- {each}" for each in LIMITS)
    if report.applied:
        yield "applied"


def _row(name: str, compared: Compared) -> list[str]:
    return [name, str(compared.queries), f"{compared.now:.1f}", f"{compared.tuned:.1f}", _difference(compared)]


def _cell(candidate: Candidate, name: str) -> str:
    compared = candidate.difference.get(name)
    value = f"{candidate.hybrid[name]:.1f}"
    return value if compared is None else f"{value} ({_difference(compared)})"


def _difference(compared: Compared) -> str:
    return f"{compared.difference:+.1f}, {compared.low:+.1f} to {compared.high:+.1f}"


def _short(label: str) -> str:
    return label if len(label) <= _WIDEST_LABEL else label[: _WIDEST_LABEL - 1] + "…"


def _csv(report: TuningReport) -> str:
    """Return one line per candidate: its changes, its scores by source, and the differences from the present ones."""
    from ragembed.indexes.tuning.report import MEAN

    names = [*report.used, MEAN]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("difference", "low", "high", "p_value")
    heads = [f"{kind}.{name}" for kind in ("hybrid", "dense") for name in names]
    writer.writerow(["label", "needs", "chosen", *heads, *(f"{name}.{part}" for name in names for part in parts)])
    for each in report.candidates:
        scores = [values[name] for values in (each.hybrid, each.dense) for name in names]
        compared = [_part(each.difference, name, part) for name in names for part in parts]
        writer.writerow([each.label, each.needs, each is report.chosen, *scores, *compared])
    return text.getvalue()


def _part(difference: Mapping[str, Compared], name: str, part: str) -> float | None:
    return getattr(difference[name], part) if name in difference else None
