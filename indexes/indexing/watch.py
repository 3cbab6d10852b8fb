"""Keep a store up to date while files change: each burst of changes starts one run of ``ragembed index``.

Notifications about changed paths only decide whether a run starts. The run itself compares all files with the store.
A notification that is lost or late therefore delays a file, but cannot hide it from the next run.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ragembed.documents.discovery import exclusions
from ragembed.documents.ignore import IGNORE_FILES, files_above
from ragembed.documents.places import Place, exists, shown_path
from ragembed.errors import ConfigError, RagembedError, StoreError, StoreLockedError
from ragembed.extras import require
from ragembed.indexes.indexing.index_run import IndexingReport, index_files, skip_counts
from ragembed.indexes.indexing.request import IndexingOptions, IndexingRequest, stored_request
from ragembed.indexes.storage.layout import DATABASE, file_path, is_store, require_store, source_path
from ragembed.indexes.storage.lock import watcher_lock
from ragembed.indexes.store import Store
from ragembed.progress import Progress

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

_LOG = logging.getLogger(__name__)
_LONGEST_MS = 5_000
"""A run starts after this time even if files keep changing."""
_CHECK_MS = 1_000
"""Time between two looks at the roots and at the ignore files above them, which no notification covers."""
_PAUSE_SECONDS, _RETRY_SECONDS = 1.0, 10.0
"""Pause before the watcher tries again: for a state that passes, such as a locked store; and after a failed run."""
_LONGEST_REST_SECONDS = 60.0
"""Longest pause after a run. Shorter runs take at most half of the time, even if a file never stops changing."""
_POLL_SECONDS, _POLL_SHARE = 2.0, 20.0
"""Pause between two polls, and its least ratio to their processor time: polling takes at most 5 % of a core."""
_SWEEP_SECONDS, _SWEEP_SHARE = 600.0, 2000.0
"""The same for a run without any notification. It finds changes that the system does not report."""
_LISTED = 3
"""Number of skipped files that are named after a run."""
_LIMIT = re.compile(r"watch limit|too many open files|no space left", re.IGNORECASE)
_LIMIT_REMEDY = (
    "the system's limit on watched folders is reached; raise it with 'sysctl fs.inotify.max_user_watches=1048576 "
    "fs.inotify.max_user_instances=1024'"
)


class Watcher:
    """Updates the store in the folder ``store`` when a file below ``paths`` changes.

    By default, ``paths`` are all paths indexed so far. ``first_run`` runs once before watching, and creates the store
    if there is none; by default, it is a run with the options of the store. ``opened`` is the store, if the caller has
    opened it. ``poll`` compares the files with the store every few seconds, without notifications from the operating
    system. A run starts when no file has changed for ``quiet_seconds``. ``on_run`` gets the report of each run, and
    ``on_note`` each message; by default, changes and messages are logged.
    """

    def __init__(
        self,
        store: Path,
        paths: Sequence[Place] = (),
        *,
        device: str | None = None,
        opened: Store | None = None,
        first_run: Callable[[], IndexingReport] | None = None,
        poll: bool = False,
        quiet_seconds: float = 0.2,
        progress: Progress | None = None,
        on_run: Callable[[IndexingReport], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self._path = store
        self._given = tuple(paths)
        self._device = device
        self._opened = opened
        self._first_run = first_run
        self._polls = poll
        self._quiet_ms = round(quiet_seconds * 1000)
        self._progress = progress
        self._on_run = on_run or _log_run
        self._on_note = on_note or _LOG.warning
        self._noted: set[str] = set()
        self._has_run = self._told = False
        self._due = self._rest_until = 0.0
        self._known: set[str] | None = None
        self._skipped: tuple[str, ...] = ()

    def run(self, stop: threading.Event) -> None:
        """Bring the store up to date, then update it after each change, until ``stop`` is set.

        An error in the first run is raised; later errors are notes, and the run is tried again.
        """
        if not self._polls:
            require("watchfiles", "watching files")
        for path in self._given:
            if not isinstance(path, Path):
                raise ConfigError(f"{path} is a URL, which cannot be watched: run 'ragembed index {path}' regularly")
            if not exists(path):
                raise ConfigError(f"{path} does not exist: give a file or folder to watch")
        with self._open() as self._store, watcher_lock(self._path):
            self._inode = (self._path / DATABASE).stat().st_ino
            if self._opened is not None and self._first_run is not None:
                self._report(self._first_run())
            self._roots = self._local_paths()
            self._request = IndexingRequest(self._path, self._roots, device=self._device, opened=self._store)
            if not self._polls:
                self._follow(stop)
            while self._polls and not stop.is_set():
                self._index(stop)
                stop.wait(self._due - time.monotonic())

    @contextmanager
    def _open(self) -> Iterator[Store]:
        if self._opened is not None:
            yield self._opened
            return
        if not is_store(self._path):
            self._report((self._first_run or self._create)())
        with Store.open(self._path, device=self._device) as store:
            yield store

    def _create(self) -> IndexingReport:
        return index_files(IndexingRequest(self._path, self._given, device=self._device), self._progress)

    def _local_paths(self) -> tuple[Path, ...]:
        """Return the absolute paths to watch."""
        stored = stored_request(self._store)
        places = self._given or (stored[0] if stored else ())
        for url in (place for place in places if not isinstance(place, Path)):
            self._note(f"{url} is a URL, which cannot be watched: run 'ragembed index' to update it")
        roots = [Path(os.path.abspath(place)) for place in places if isinstance(place, Path)]  # noqa: PTH100  keeps links
        if not roots:
            raise ConfigError("nothing to watch: give a file or folder, as in 'ragembed index docs/ --watch'")
        return tuple(dict.fromkeys(roots))

    # Waiting for changes

    def _follow(self, stop: threading.Event) -> None:
        """Run after each burst of notifications, until ``stop`` is set or the system cannot watch the files."""
        while not stop.is_set():
            surroundings = self._surroundings()
            try:
                notifier = self._notifier(stop)
            except FileNotFoundError:
                stop.wait(_PAUSE_SECONDS)  # a root has just been removed
                continue
            except (OSError, RuntimeError) as error:
                self._on_note(f"the files are compared every few seconds instead of watched: {_reason(error)}")
                self._polls = True
                return
            with notifier:
                self._index(stop)
                while not stop.is_set():
                    try:
                        changed = self._changed(notifier, stop)
                    except RuntimeError:  # a name that is not Unicode
                        stop.wait(_PAUSE_SECONDS)
                        break
                    if self._surroundings() != surroundings:
                        break
                    if self._concerns(changed):
                        # New folders have no watch if the system's limit is reached: watching again reports that.
                        if any(map(os.path.isdir, changed)):
                            break
                        self._index(stop)
                    elif time.monotonic() > self._due:
                        self._index(stop)

    def _notifier(self, stop: threading.Event) -> RustNotify:
        """Watch the roots that exist, from now on. Raises :class:`OSError` and :class:`RuntimeError`."""
        # watchfiles.watch() would begin to watch only when it waits, so changes during the first run would be missed.
        from watchfiles._rust_notify import RustNotify

        roots = [str(root) for root in self._present()]
        # If errors of permission were ignored, watchfiles would also ignore the limit on watched folders.
        arguments = (roots, False, False, 0, True, False)
        try:
            return RustNotify(*arguments)
        except FileNotFoundError:
            raise
        except (OSError, RuntimeError):
            stop.wait(_PAUSE_SECONDS)  # the former watches may not be freed yet
            return RustNotify(*arguments)

    def _changed(self, notifier: RustNotify, stop: threading.Event) -> set[Path]:
        """Wait for changes and return their paths; return none if nothing changes for a second.

        This lasts up to five seconds after the first change if more changes follow.
        """
        changes = notifier.watch(_LONGEST_MS, self._quiet_ms, _CHECK_MS, stop)
        if changes == "signal":
            raise KeyboardInterrupt
        return set() if isinstance(changes, str) else {Path(path) for _, path in changes}

    def _present(self) -> list[Path]:
        """Return the roots that exist and can be accessed."""
        return [root for root in self._roots if len(_state(root, "st_ino")) > 1]

    def _surroundings(self) -> list[tuple[object, ...]]:
        """Return the identities of the roots, and the states of the ignore files above them."""
        states: list[tuple[object, ...]] = []
        for root in self._roots:
            states.append(_state(root, "st_dev", "st_ino"))
            states += [_state(file, "st_size", "st_mtime_ns") for file in files_above(root)]
        return states

    def _concerns(self, changed: Iterable[Path]) -> bool:
        """Return whether one of the changes can change the store: not in an excluded folder, for example."""
        try:
            return self._touches_indexed(changed)
        except RagembedError:
            return True  # the run reports the error

    def _touches_indexed(self, changed: Iterable[Path]) -> bool:
        gone: set[Path] = set()
        shut: set[Path] = set()
        excluded = None
        for path in changed:
            subject = _ruled_by(path)
            if not shut.isdisjoint((subject, *subject.parents)):
                continue
            if not exists(subject):
                gone.add(subject)
                continue
            excluded = excluded or exclusions(self._present(), self._options())
            if (place := excluded(subject)) is None:
                return True
            shut.add(place)
        # What is gone or excluded now matters only if the store has files from there.
        return any(source_path(place, self._path) in self._stored() for place in gone | shut)

    def _options(self) -> IndexingOptions:
        stored = stored_request(self._store)
        return stored[1] if stored else IndexingOptions()

    def _stored(self) -> set[str]:
        """Return the names of all files in the store, of those that the last run skipped, and of their folders."""
        if self._known is None:
            self._known = set()
            for name in (*self._store.sources(), *self._skipped):
                while name and name not in self._known:
                    self._known.add(name)
                    name = name.rpartition("/")[0]
        return self._known

    # Runs

    def _index(self, stop: threading.Event) -> None:
        """Update the store when no other process writes to it, and set the time of the next run without a change."""
        stop.wait(max(0.0, self._rest_until - time.monotonic()))
        while not stop.is_set():
            started, used = time.monotonic(), time.thread_time()
            self._require_same_store()
            try:
                report = index_files(self._request, self._progress)
            except StoreLockedError:
                self._note("waiting: another process is writing to the store")
                stop.wait(_PAUSE_SECONDS)
            except (RagembedError, OSError) as error:
                if not self._has_run:
                    raise
                self._rest_after(started)
                self._due = time.monotonic() + _RETRY_SECONDS
                self._note(f"the store was not updated, next attempt in {_RETRY_SECONDS:g} s: {error}")
                return
            else:
                least, share = (_POLL_SECONDS, _POLL_SHARE) if self._polls else (_SWEEP_SECONDS, _SWEEP_SHARE)
                now = self._rest_after(started)
                self._due = now + max(least, now - started, share * (time.thread_time() - used))
                self._report(report)
                if not self._told:
                    self._told = True
                    self._on_note(f"watching {', '.join(map(shown_path, self._roots))}")
                return

    def _rest_after(self, started: float) -> float:
        """Let the next run begin only after a pause as long as the run that began at ``started``; return the time."""
        now = time.monotonic()
        self._rest_until = now + min(now - started, _LONGEST_REST_SECONDS)
        return now

    def _require_same_store(self) -> None:
        require_store(self._path)
        if (self._path / DATABASE).stat().st_ino != self._inode:
            raise StoreError(f"the store {self._path} was replaced while it was watched: start the watcher again")

    def _report(self, report: IndexingReport) -> None:
        self._has_run = True
        self._known = None
        self._skipped = tuple(report.scan.skipped)
        skipped = [
            f"skipped {shown_path(file_path(name, self._path))}: {why}" for name, why in report.scan.skipped.items()
        ]
        new = [note for note in skipped if note not in self._noted]
        counts = [f"skipped {skip_counts(report.scan.skipped)}: list them with ragembed status --skipped"]
        for note in (*report.scan.warnings, *(new if len(new) <= _LISTED else counts)):
            self._note(note)
        self._noted = {*report.scan.warnings, *skipped}
        self._on_run(report)

    def _note(self, text: str) -> None:
        """Pass on a message, unless it is already known since the last run."""
        if text not in self._noted:
            self._noted.add(text)
            self._on_note(text)


def _ruled_by(path: Path) -> Path:
    """Return the path to check against the rules for a change of ``path``: for an ignore file, its folder."""
    if path.parts[-3:] == (".git", "info", "exclude"):
        return path.parents[2]
    return path.parent if path.name in (*IGNORE_FILES, ".git") else path


def _state(place: Place, *fields: str) -> tuple[object, ...]:
    """Return the place and fields of its status, which are left out if it cannot be accessed."""
    try:
        status = place.stat()
    except OSError:
        return (place,)
    return (place, *(getattr(status, name) for name in fields))


def _reason(error: Exception) -> str:
    return _LIMIT_REMEDY if _LIMIT.search(str(error)) else f"the system cannot watch these files ({error})"


def _log_run(report: IndexingReport) -> None:
    scan = report.scan
    if scan.added or scan.changed or scan.removed:
        counts = len(scan.added), len(scan.changed), len(scan.removed)
        _LOG.info("%d files added, %d changed, %d removed in %.1f s", *counts, report.seconds)
