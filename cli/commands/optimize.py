"""``ragembed optimize``."""

from __future__ import annotations

from pathlib import Path

import click

from ragembed.cli.options import format_option, store_option
from ragembed.cli.output import print_json, print_jsonl, readable_bytes, say
from ragembed.cli.progress import StderrProgress
from ragembed.cli.waiting import WritingCommand
from ragembed.indexes import Store
from ragembed.indexes.layout import choose_store


@click.command(cls=WritingCommand)
@store_option
@format_option
def command(store: Path | None, wait_seconds: float, output: str) -> None:
    """Join small segments, drop what no chunk uses, and give the space back to the disk.

    What is found stays the same, but that segments which grow past 10,000 vectors get an approximate index where the
    store asks for one. An interrupted run is carried on by the next.
    """
    with Store.open(choose_store(store)) as opened:
        before = opened.status()
        opened.optimize(StderrProgress(), wait_seconds)
        after = opened.status()
    result = {
        "segments": {"before": len(before["segments"]), "after": len(after["segments"])},
        "unused_vectors": {"before": before["unused_vectors"], "after": after["unused_vectors"]},
        "bytes": {"before": before["bytes"], "after": after["bytes"]},
    }
    if output == "json":
        print_json(result)
    elif output == "jsonl":
        print_jsonl([result])
    else:
        say(
            f"segments: {len(before['segments']):,} to {len(after['segments']):,}; "
            f"unused vectors: {before['unused_vectors']:,} to {after['unused_vectors']:,}; "
            f"size: {readable_bytes(before['bytes'])} to {readable_bytes(after['bytes'])}"
        )
