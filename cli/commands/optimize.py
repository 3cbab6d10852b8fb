"""``ragembed optimize``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragembed.cli.options import WritingCommand, device_option, format_option, index_options, store_option
from ragembed.cli.output import print_record, readable_bytes, say, say_choice, warnings_as_notes
from ragembed.cli.progress import StderrProgress
from ragembed.cli.requests import index_config
from ragembed.indexes import Store
from ragembed.indexes.indexing.request import open_existing
from ragembed.indexes.storage.layout import choose_store


@click.command(cls=WritingCommand)
@store_option
@index_options
@device_option
@format_option
def command(store: Path | None, device: str | None, wait_seconds: float, output: str, **index: Any) -> None:
    """Join small segments, drop what no chunk uses, and give the space back to the disk.

    The options of the index ask for another one than before; no document is read or encoded. Where none is given and
    the index is approximate, it is built and tuned again if anything has changed. An interrupted run is carried on by
    the next.
    """
    where = choose_store(store)
    with open_existing(where, device) as found:
        wanted = index_config(index, found)
        opened = Store.open(where, device=device) if found is None else found  # an error that says how to make one
        before, had = opened.status(), (opened.index_choice(), opened.index_check())
        with warnings_as_notes():
            opened.optimize(StderrProgress(), wait_seconds, index=wanted)
        after, picked, check = opened.status(), opened.index_choice(), opened.index_check()
    if picked is not None and check is not None and picked != had[0] and check != had[1]:
        say_choice(picked, check)
    result = {
        "segments": {"before": len(before["segments"]), "after": len(after["segments"])},
        "unused_vectors": {"before": before["unused_vectors"], "after": after["unused_vectors"]},
        "bytes": {"before": before["bytes"], "after": after["bytes"]},
        "index": after["index"],
    }
    if not print_record(result, output):
        say(
            f"segments: {len(before['segments']):,} to {len(after['segments']):,}; "
            f"unused vectors: {before['unused_vectors']:,} to {after['unused_vectors']:,}; "
            f"size: {readable_bytes(before['bytes'])} to {readable_bytes(after['bytes'])}"
        )
