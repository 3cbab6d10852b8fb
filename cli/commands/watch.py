"""``ragembed watch``."""

from __future__ import annotations

import signal
import threading
from datetime import datetime
from pathlib import Path

import click

from ragembed.cli import INTERRUPTED_EXIT
from ragembed.cli.options import PlacePath, device_option, format_option, store_option
from ragembed.cli.output import counted, print_record, say
from ragembed.cli.progress import StderrProgress
from ragembed.cli.project import choose_store
from ragembed.documents.places import Place
from ragembed.indexes.indexing.run import IndexingReport
from ragembed.indexes.indexing.watch import Watcher


@click.command(name="watch")
@click.argument("paths", nargs=-1, type=PlacePath(), metavar="[PATH]...")
@store_option
@device_option
@click.option(
    "--poll",
    is_flag=True,
    help="Compare the files with the store every few seconds. Use it for network drives, whose changes the operating "
    "system does not report.",
)
@format_option
def command(paths: tuple[Place, ...], store: Path | None, device: str | None, poll: bool, output: str) -> None:
    """Update a store whenever files change.

    \b
    ragembed watch docs/
    ragembed watch

    Indexes the files that changed since the last run, then watches them and updates the store after each change, until
    you press Ctrl-C. Without PATH, watches all paths indexed so far. A store that exists keeps the options of its last
    run; set other options with ragembed index. The files of a PATH that disappears stay in the store.

    Prints one line for each run that changes the store; with --json, one JSON object per line.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    stop = threading.Event()

    def terminate(_signal: int, _frame: object) -> None:
        stop.set()
        raise KeyboardInterrupt

    def report(done: IndexingReport) -> None:
        scan = done.scan
        if not (scan.added or scan.changed or scan.removed):
            return
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        record = {
            "time": now,
            "added": scan.added,
            "changed": scan.changed,
            "removed": scan.removed,
            "chunks": done.chunks,
            "encoded": done.encoded,
            "seconds": round(done.seconds, 3),
        }
        if not print_record(record, output if output == "text" else "jsonl"):
            say(
                f"{now}  {counted(len(scan.added), 'file')} added, {len(scan.changed):,} changed, "
                f"{len(scan.removed):,} removed; {counted(done.chunks, 'chunk')}; {done.seconds:.1f} s"
            )

    def note(text: str) -> None:
        say(f"note: {text}", err=True)

    progress = StderrProgress()
    watcher = Watcher(
        choose_store(store), paths, device=device, poll=poll, progress=progress, on_run=report, on_note=note
    )
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        watcher.run(stop)
    except KeyboardInterrupt:
        progress.finish()
        if not stop.is_set():
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED_EXIT) from None
    finally:
        signal.signal(signal.SIGTERM, before)
