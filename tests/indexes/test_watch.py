"""A watched store follows its files: one run per burst of changes, and the result of a new index."""

import hashlib
import itertools
import os
import random
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from watchfiles import _rust_notify

from ragembed.documents.discovery import discover
from ragembed.documents.places import RemotePath
from ragembed.errors import ConfigError, MissingExtraError, RagembedError, StoreError, StoreLockedError
from ragembed.indexes import Store
from ragembed.indexes.indexing import watch
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.watch import Watcher
from ragembed.indexes.storage.layout import source_path
from ragembed.indexes.storage.lock import writer_lock
from tests.conftest import WORDS

SECONDS = 60
QUIET = 0.03
LIMIT = 'OS file watch limit reached. about ["/docs"] (Error { kind: MaxFilesWatch, paths: ["/docs"] })'


@pytest.fixture
def config(tiny_config):
    return tiny_config.replace(extractor="re:dim=8", weighting="uniform", postprocess=("normalize",))


@pytest.fixture
def docs(in_folder):
    folder = in_folder / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "anchor.rst").write_text("the anchor stays\n")
    (folder / "sub" / "b.md").write_text("supersonic flow\n")
    return folder


@pytest.fixture
def store(docs, config):
    path = docs.parent / ".ragembed"
    index_files(IndexingRequest(path, (docs,), embedder=config))
    return path


class Following:
    """A watcher in a thread, with its reports and notes."""

    def __init__(self, store, paths=(), **options):
        self.store = store
        self.reports, self.notes = [], []
        self.stop = threading.Event()
        self.error = None
        options = {"quiet_seconds": QUIET, **options}
        self._watcher = Watcher(store, paths, on_run=self.reports.append, on_note=self.notes.append, **options)
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            self._watcher.run(self.stop)
        except RagembedError as error:
            self.error = error

    def wait(self, condition):
        """Wait until ``condition`` holds; it is evaluated after each run and each note."""
        deadline, seen = time.monotonic() + SECONDS, None
        while True:
            assert time.monotonic() < deadline, self.notes
            assert self.error is None, self.error
            now = len(self.reports), len(self.notes)
            if now != seen and condition():
                return
            seen = now
            time.sleep(0.005)

    def wait_for_files(self, *names):
        self.wait(lambda: sorted(names) == sorted(files(self.store)))

    def wait_for_note(self, part):
        self.wait(lambda: any(part in note for note in self.notes))


@contextmanager
def following(store, paths=(), **options):
    """Watch ``store`` in a thread; the block begins when it is up to date."""
    running = Following(store, paths, **options)
    running._thread.start()
    try:
        running.wait_for_note("watching ")
        yield running
    finally:
        running.stop.set()
        running._thread.join(SECONDS)
    assert running.error is None


def files(store):
    with Store.open(store) as opened:
        return set(opened.sources())


def texts(store):
    with Store.open(store) as opened:
        return [record.chunk.text for record in opened.chunks()]


def contents(store):
    with Store.open(store) as opened:
        chunks = {record.id: (record.source, record.chunk) for record in opened.chunks()}
        return chunks, {name: source.sha256 for name, source in opened.sources().items()}, opened.status()["skipped"]


def answers(store):
    with Store.open(store) as opened:
        searches = [opened.search(word, 5, mode) for word in WORDS[:20] for mode in ("dense", "lexical")]
    return [{hit.id: pytest.approx(hit.score, abs=5e-4) for hit in hits} for hits in searches]


def test_catches_up_at_start_and_then_follows(store, docs):
    (docs / "new.md").write_text("a new file\n")
    (docs / "sub" / "b.md").unlink()
    with following(store) as running:
        assert (running.reports[0].scan.added, running.reports[0].scan.removed) == (["docs/new.md"], ["docs/sub/b.md"])
        (docs / "sub" / "late.md").write_text("a late file\n")
        running.wait_for_files("docs/anchor.rst", "docs/new.md", "docs/sub/late.md")
        with Store.open(store) as opened:
            assert opened.search("late file", 1, "lexical")[0].source == "docs/sub/late.md"


def test_shares_a_store_that_is_open_for_searches(store, docs):
    with Store.open(store) as opened, following(store, opened=opened) as running:
        (docs / "late.md").write_text("a late file\n")
        running.wait(lambda: [hit.source for hit in opened.search("late file", 1, "dense")] == ["docs/late.md"])


class Editor:
    """Random edits below ``root``, of the kinds that editors, shells and git make."""

    def __init__(self, root, seed):
        self.root = root
        self.draw = random.Random(seed)
        self.made = 0

    def edit(self):
        edits = (self.save, self.save, self.rename_save, self.rename_save, self.add, self.add, self.add_folder)
        more = (self.remove, self.rename_folder, self.move_out_and_in, self.ignore)
        self.draw.choice(edits + more)()

    def text(self):
        return " ".join(self.draw.choices(WORDS, k=self.draw.randint(3, 40))) + "\n"

    def fresh(self, suffix=".md"):
        self.made += 1
        return f"n{self.made}{suffix}"

    def folders(self):
        return sorted(path for path in self.root.rglob("*") if path.is_dir())

    def folder(self):
        return self.draw.choice([self.root, *self.folders()])

    def file(self):
        found = sorted(path for path in self.root.rglob("*.[mt][dx]*") if path.is_file())
        return self.draw.choice(found) if found else self.add()

    def add(self):
        path = self.folder() / self.fresh(self.draw.choice([".md", ".txt"]))
        path.write_text(self.text())
        return path

    def save(self):
        self.file().write_text(self.text())

    def rename_save(self):
        file = self.file()
        swap = file.with_name(f".{file.name}.swp")
        swap.write_text(self.text())
        swap.replace(file)

    def add_folder(self):
        folder = self.folder() / self.fresh("") / "deep"
        folder.mkdir(parents=True)
        (folder / self.fresh()).write_text(self.text())

    def remove(self):
        self.file().unlink()

    def rename_folder(self):
        for folder in self.folders()[:1]:
            folder.rename(self.root / self.fresh(""))

    def move_out_and_in(self):
        for folder in self.folders()[:1]:
            outside = self.root.parent / "outside"
            folder.rename(outside)
            (outside / self.fresh()).write_text(self.text())
            outside.rename(self.root / self.fresh(""))

    def ignore(self):
        patterns = ["*.txt", "*.md", "n1*", "deep/", "!n12.md", ""]
        (self.folder() / ".gitignore").write_text("\n".join(self.draw.sample(patterns, 2)))


def test_store_after_random_edits_equals_a_new_index(store, docs, config):
    new = store.with_name("new")
    subprocess.run(["git", "init", "-q", docs], check=True)
    editor = Editor(docs, 5)
    with following(store) as running:
        for _ in range(5):
            for _ in range(20):
                editor.edit()
            found = {source_path(each.path, store): each for each in discover([docs]) if each.skipped is None}
            wanted = {name: hashlib.sha256(each.read()[0]).hexdigest() for name, each in found.items()}
            running.wait(lambda wanted=wanted: contents(store)[1] == wanted)
    index_files(IndexingRequest(new, (docs,), embedder=config))
    assert len(wanted) > 10
    assert contents(store) == contents(new)
    assert answers(store) == answers(new)


def test_checkout_of_many_files_is_one_run(store, docs, monkeypatch):
    monkeypatch.setattr(watch, "_LONGEST_MS", 60_000)

    def git(*arguments):
        subprocess.run(["git", "-C", docs, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True)

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "a")
    git("checkout", "-qb", "many")
    for i in range(98):
        file = docs / f"d{i % 20}" / f"f{i}.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{WORDS[i % len(WORDS)]} {i}\n")
    (docs / "anchor.rst").write_text("another text\n")
    (docs / "sub" / "b.md").unlink()
    git("add", ".")
    git("commit", "-qm", "b")
    git("checkout", "-q", "main")
    with following(store, quiet_seconds=1.0) as running:
        git("checkout", "-q", "many")
        running.wait(lambda: len(files(store)) == 99)
    first, second = (report.scan for report in running.reports)
    assert (first.added, first.changed, first.removed) == ([], [], [])
    assert (len(second.added), second.changed, second.removed) == (98, ["docs/anchor.rst"], ["docs/sub/b.md"])


def test_changes_of_files_that_are_not_read_start_no_run(store, docs):
    (docs / ".git" / "info").mkdir(parents=True)
    (docs / ".gitignore").write_text("build/\n*.log\n")
    (docs / "build").mkdir()
    with following(store) as running:
        (docs / ".git" / "index").write_text("x")
        (docs / ".git" / "objects").mkdir()
        (docs / "node_modules" / "x").mkdir(parents=True)
        (docs / "build" / "out.md").write_text("built\n")
        (docs / "app.log").write_text("a line\n")
        (docs / ".a.md.swp").write_text("x")
        (docs / "short.tmp").write_text("x")
        (docs / "short.tmp").unlink()
        with writer_lock(store):
            (store / "work").mkdir()
        os.link(docs / "anchor.rst", docs / ".linked")
        time.sleep(10 * QUIET)
        (docs / "read.md").write_text("a file\n")
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md", "docs/read.md")
    assert [report.scan.added for report in running.reports] == [[], ["docs/read.md"]]


@pytest.mark.parametrize("name", [".ragembed", "my-store"])
def test_writing_a_store_inside_a_watched_folder_starts_no_run(docs, config, name):
    store = docs / name
    index_files(IndexingRequest(store, (docs,), embedder=config))
    with following(store) as running:
        (docs / "first.md").write_text("a file\n")
        running.wait_for_files("anchor.rst", "sub/b.md", "first.md")
        time.sleep(10 * QUIET)
        (docs / "second.md").write_text("a file\n")
        running.wait_for_files("anchor.rst", "sub/b.md", "first.md", "second.md")
    assert [report.scan.added for report in running.reports] == [[], ["first.md"], ["second.md"]]


@pytest.mark.parametrize(
    ("name", "place"), [(".gitignore", "above"), (".ragembedignore", "inside"), (".git/info/exclude", "above")]
)
def test_edits_of_ignore_files_take_effect(store, docs, monkeypatch, name, place):
    monkeypatch.setattr(watch, "_CHECK_MS", 20)
    folder = docs.parent if place == "above" else docs
    (folder / ".git" / "info").mkdir(parents=True)
    with following(store) as running:
        (folder / name).write_text("b.md\n")
        running.wait_for_files("docs/anchor.rst")
        (folder / name).unlink()
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md")


def limited(monkeypatch, allowed):
    """Let only the first ``allowed`` attempts to watch succeed."""
    original, attempts = _rust_notify.RustNotify, []

    def notifier(*arguments):
        attempts.append(arguments)
        if len(attempts) > allowed:
            raise OSError(LIMIT)
        return original(*arguments)

    monkeypatch.setattr(_rust_notify, "RustNotify", notifier)
    monkeypatch.setattr(watch, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(watch, "_POLL_SHARE", 0.0)


@pytest.mark.parametrize("allowed", [0, 1], ids=["at start", "by a new folder"])
def test_polling_takes_over_at_the_limit_of_watches(store, docs, monkeypatch, allowed):
    limited(monkeypatch, allowed)
    with following(store) as running:
        (docs / "new").mkdir()
        (docs / "new" / "c.md").write_text("a file\n")
        running.wait_for_note("sysctl fs.inotify.max_user_watches")
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md", "docs/new/c.md")
        (docs / "new" / "c.md").write_text("another\n")
        running.wait(lambda: ["docs/new/c.md"] in [report.scan.changed for report in running.reports])
    assert len([note for note in running.notes if "sysctl" in note]) == 1


def test_polls_on_request_without_watchfiles(store, docs, monkeypatch):
    limited(monkeypatch, 0)
    monkeypatch.setattr(watch, "require", None)
    with following(store, poll=True) as running:
        (docs / "c.md").write_text("a file\n")
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md", "docs/c.md")
    assert running.notes == ["watching docs"]


def test_second_watcher_names_the_first(store):
    with following(store), pytest.raises(StoreLockedError) as raised:
        Watcher(store).run(threading.Event())
    message = str(raised.value)
    assert f"already watches the store {store} (PID {os.getpid()} on {socket.gethostname()}, since 2" in message
    with following(store):  # the lock is free again
        pass


@pytest.mark.parametrize("whole", [True, False], ids=["missing", "empty"])
def test_files_of_an_unmounted_root_stay(store, docs, monkeypatch, whole):
    monkeypatch.setattr(watch, "_CHECK_MS", 20)
    away = docs.with_name("away")
    with following(store) as running:
        docs.rename(away)
        if not whole:
            docs.mkdir()
        running.wait_for_note("docs is missing" if whole else "has none of its 2 files")
        if not whole:
            docs.rmdir()
        assert files(store) == {"docs/anchor.rst", "docs/sub/b.md"}
        (away / "c.md").write_text("written elsewhere\n")
        away.rename(docs)
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md", "docs/c.md")
        (docs / "c.md").unlink()  # the root is watched again
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md")


def test_root_that_is_a_file_is_followed_through_rename_saves(docs, config):
    store, file = docs.parent / "one", docs / "anchor.rst"
    index_files(IndexingRequest(store, (file,), embedder=config))
    with following(store, (file,)) as running:
        for text in ("first", "second", "third"):
            (docs / "swap").write_text(text)
            (docs / "swap").replace(file)
            running.wait(lambda text=text: texts(store) == [text])
        file.write_text("fourth, in place")
        running.wait(lambda: texts(store) == ["fourth, in place"])


def test_bad_files_are_noted_once_and_stop_nothing(store, docs, monkeypatch):
    monkeypatch.setattr(watch, "_PAUSE_SECONDS", 0.01)
    with following(store) as running:
        (docs / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
        running.wait_for_note("skipped docs/bad.pdf")
        (docs / os.fsdecode(b"name\xff.md")).write_text("a name that is not Unicode\n")
        running.wait_for_note("its name is not valid Unicode")
        (docs / "c.md").write_text("a file\n")
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md", "docs/c.md")
        (docs / "bad.pdf").unlink()
        running.wait(lambda: "docs/bad.pdf" not in contents(store)[2])
    assert len([note for note in running.notes if "bad.pdf" in note]) == 1


def test_waits_for_another_writer(store, docs, monkeypatch):
    monkeypatch.setattr(watch, "_PAUSE_SECONDS", 0.01)
    with following(store) as running:
        with writer_lock(store):
            (docs / "c.md").write_text("a file\n")
            running.wait_for_note("another process is writing")
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md", "docs/c.md")


def test_failed_run_is_tried_again(store, docs, monkeypatch):
    monkeypatch.setattr(watch, "_CHECK_MS", 20)
    monkeypatch.setattr(watch, "_RETRY_SECONDS", 0.0)
    original, failures = watch.index_files, []

    def failing(*arguments):
        if (docs / "c.md").exists() and len(failures) < 3:
            failures.append(1)
            raise StoreError("the disk is full")
        return original(*arguments)

    monkeypatch.setattr(watch, "index_files", failing)
    with following(store) as running:
        (docs / "c.md").write_text("a file\n")
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md", "docs/c.md")
    assert len([note for note in running.notes if "the disk is full" in note]) == 1


def test_a_file_that_grows_all_the_time_leaves_pauses(store, docs, monkeypatch):
    original, times = watch.index_files, []

    def slow(*arguments):
        start = time.monotonic()
        time.sleep(0.1)
        report = original(*arguments)
        times.append((start, time.monotonic()))
        return report

    monkeypatch.setattr(watch, "index_files", slow)
    with following(store) as running, (docs / "log.md").open("a") as file:
        while len(running.reports) < 4:
            file.write("a line\n")
            file.flush()
            time.sleep(0.005)
    assert all(start - end >= 0.1 for (_, end), (start, _) in itertools.pairwise(times))


def test_changes_without_a_notification_are_found_later(store, docs, monkeypatch):
    monkeypatch.setattr(watch, "_CHECK_MS", 20)
    monkeypatch.setattr(watch, "_SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(watch, "_SWEEP_SHARE", 0.0)
    monkeypatch.setattr(Watcher, "_concerns", lambda _self, _changed: False)
    with following(store) as running:
        (docs / "c.md").write_text("a file\n")
        running.wait_for_files("docs/anchor.rst", "docs/sub/b.md", "docs/c.md")


def test_ends_with_an_error_if_the_store_was_removed(store, docs):
    running = Following(store)
    running._thread.start()
    running.wait_for_note("watching ")
    shutil.rmtree(store)
    (docs / "c.md").write_text("a file\n")
    running._thread.join(SECONDS)
    assert "no store at" in str(running.error)


@pytest.mark.usefixtures("needs_minilm")
def test_creates_a_store_that_does_not_exist(docs):
    with following(docs.parent / "made", (docs,)) as running:
        assert running.reports[0].scan.added == ["docs/anchor.rst", "docs/sub/b.md"]


def test_unusable_paths_are_errors(store, docs, monkeypatch):
    stop = threading.Event()
    with pytest.raises(ConfigError, match="s3://bucket/docs is a URL, which cannot be watched"):
        Watcher(store, (RemotePath("s3://bucket/docs"),)).run(stop)
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        Watcher(store, (Path("nowhere"),)).run(stop)
    with Store.create(docs.parent / "empty", Store.open(store).embedder):
        pass
    with pytest.raises(ConfigError, match="nothing to watch"):
        Watcher(docs.parent / "empty").run(stop)
    monkeypatch.setattr("ragembed.extras.is_installed", lambda _module: False)
    with pytest.raises(MissingExtraError, match=r"\[serve\]"):
        Watcher(store).run(stop)
