"""``ragembed optimize``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragembed.cli.options import WritingCommand, device_option, format_option, index_options, store_option
from ragembed.cli.output import print_record, say, say_choice, warnings_as_notes
from ragembed.cli.progress import StderrProgress
from ragembed.cli.project import choose_store
from ragembed.cli.requests import index_config
from ragembed.indexes import Store
from ragembed.indexes.indexing.request import open_existing
from ragembed.printable import readable_bytes


@click.command(name="optimize", cls=WritingCommand)
@store_option
@index_options
@device_option
@format_option
def command(store: Path | None, device: str | None, wait_seconds: float, output: str, **index: Any) -> None:
    """Merge small segments and free unused space.

    \b
    ragembed optimize
    ragembed optimize --index hnsw --min-recall 0.99

    Also removes vectors that no chunk uses. With an index option, such as --index or --min-recall, replaces the index
    without reading or encoding documents. Without one, rebuilds and tunes an approximate index if the vectors have
    changed. If a run is
    interrupted, the next run continues it.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    where = choose_store(store)
    with open_existing(where, device) as found:
        wanted = index_config(index, found)
        opened = Store.open(where, device=device) if found is None else found  # raises an error with advice
        before, old_choice, old_check = opened.status(), opened.index_choice(), opened.index_check()
        with warnings_as_notes():
            opened.optimize(StderrProgress(), wait_seconds, index=wanted)
        after, picked, check = opened.status(), opened.index_choice(), opened.index_check()
    if picked is not None and check is not None and picked != old_choice and check != old_check:
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
