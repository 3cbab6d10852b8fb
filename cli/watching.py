"""``ragembed index --watch``."""

from __future__ import annotations

import signal
import threading
from datetime import datetime

import click

from ragembed.cli import INTERRUPTED_EXIT
from ragembed.cli.output import counted, print_record, say
from ragembed.indexes.indexing.index_run import IndexingReport, index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.watch import Watcher
from ragembed.progress import StderrProgress


def watch_files(
    request: IndexingRequest, progress: StderrProgress, output: str, *, poll: bool, wait_seconds: float
) -> None:
    """Index as ``request`` says, then update the store after each change of a file, until a signal ends the process."""
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

    watcher = Watcher(
        request.store,
        request.paths,
        device=request.device,
        opened=request.opened,
        first_run=lambda: index_files(request, progress, wait_seconds=wait_seconds),
        poll=poll,
        progress=progress,
        on_run=report,
        on_note=note,
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
