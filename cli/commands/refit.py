"""``ragembed refit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from ragembed.cli.options import WritingCommand, format_option, setting_option, shared, with_options
from ragembed.cli.output import counted, print_record, say, warnings_as_notes
from ragembed.cli.project import choose_store
from ragembed.cli.requests import postprocess_steps
from ragembed.config.settings import EmbedderConfig, QueryFit
from ragembed.embedder import Embedder
from ragembed.indexes.indexing.refit import refit_store
from ragembed.progress import StderrProgress

refit_options = with_options(
    setting_option(EmbedderConfig, "postprocess", default="the present ones"),
    setting_option(
        EmbedderConfig, "query_fit", default="the present one", type=click.Choice(get_args(QueryFit)), metavar=None
    ),
)
"""Add the options of a fit."""


@click.command(name="refit", cls=WritingCommand)
@refit_options
@shared("store")
@format_option
def command(
    postprocess: str | None, query_fit: QueryFit | None, store: Path | None, wait_seconds: float, output: str
) -> None:
    """Refit the post-processors of a store without encoding documents.

    \b
    ragembed refit
    ragembed refit --postprocess center,normalize

    Without options, fits the present post-processors on the documents that the store contains now. Run it when ragembed
    status --drift recommends it. If a run is interrupted, the store keeps its old fit, and the next run
    continues.
    """
    steps = None if postprocess is None else postprocess_steps(postprocess)
    with warnings_as_notes():
        fitted = refit_store(choose_store(store), steps, query_fit, StderrProgress(), wait_seconds)
    print_fit(fitted, output)


def print_fit(fitted: Embedder, output: str) -> None:
    """Print what an embedder was fitted on, as ``text``, ``json`` or ``jsonl``."""
    about: dict[str, Any] = {
        "postprocess": list(fitted.config.postprocess),
        "query_fit": fitted.config.query_fit,
        "fitted_on": fitted.describe()["fitted_on"],
        "fingerprint": fitted.fingerprint,
    }
    if not print_record(about, output):
        counts = about["fitted_on"]
        queries = counted(counts["pseudo_queries"], "pseudo-query")
        fit = f"fitted on {counted(counts['documents'], 'chunk')} and {queries}"
        say(
            f"postprocess: {', '.join(about['postprocess']) or 'none'}, query fit: {about['query_fit']}, "
            f"{fit if counts['documents'] else 'nothing to fit'}"
        )
