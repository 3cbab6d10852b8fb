"""Indexing and searching documents at URLs, and what happens if the URLs cannot be reached."""

import http.server
import json
import threading

import pytest

fsspec = pytest.importorskip("fsspec")

from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402  after importorskip

from ragembed.documents import remote  # noqa: E402
from ragembed.documents.places import RemotePath, place_of  # noqa: E402
from ragembed.documents.readers.registry import unread_reason  # noqa: E402
from ragembed.errors import ConfigError  # noqa: E402
from ragembed.indexes import Store  # noqa: E402
from ragembed.indexes.indexing.request import IndexingOptions  # noqa: E402
from ragembed.indexes.storage.layout import is_below  # noqa: E402
from tests.indexes.conftest import counts  # noqa: E402

DOCS = RemotePath("memory://docs")


@pytest.fixture
def memory():
    """An empty file system in memory, with three documents below ``memory://docs``."""
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    system = fsspec.filesystem("memory")
    system.pipe("memory://docs/locks.md", b"# Locks\n\nthe writer holds the lock of the store\n")
    system.pipe("memory://docs/deep/wing.txt", b"shock wave and boundary layer\n\nsupersonic air flow on a wing\n")
    system.pipe("memory://docs/cat.txt", b"the cat sleeps\n")
    yield system
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture
def away(monkeypatch):
    """Makes a URL and everything below it raise the error of a server that does not answer."""

    def cut(url):
        original = remote._connect

        def connect(asked):
            if is_below(asked, url):
                raise TimeoutError("no answer")
            return original(asked)

        monkeypatch.setattr(remote, "_connect", connect)

    yield cut
    monkeypatch.undo()


def stored(folder):
    with Store.open(folder / ".ragembed") as store:
        return set(store.sources()), store.last_request()["paths"]


@pytest.mark.parametrize(
    ("source", "root", "below"),
    [
        ("s3://bucket/docs/a.md", "s3://bucket/docs", True),
        ("s3://bucket/docs2/a.md", "s3://bucket/docs", False),
        ("s3://bucket/a.md", "gs://bucket", False),
        ("memory://docs/a.md", "memory://", True),
        ("file:///shared/a.md", "/shared", False),
        ("s3://bucket/a.md", ".", False),
    ],
)
def test_is_below_for_urls(source, root, below):
    assert is_below(source, root) is below


def test_url_is_indexed_and_updated(memory, run, in_folder, monkeypatch):
    report = run(DOCS)
    assert counts(report) == (3, 0, 0, 0, 0)
    assert sorted(report.scan.added) == [
        "memory://docs/cat.txt",
        "memory://docs/deep/wing.txt",
        "memory://docs/locks.md",
    ]
    with Store.open(in_folder / ".ragembed") as store:
        assert store.search("lock of the store", 1)[0].source == "memory://docs/locks.md"
        for where in (
            "path GLOB 'memory://docs/*'",
            "path = 'memory://docs/cat.txt'",
            "path GLOB 'cat.*'",
            "ext = 'txt'",
        ):
            assert "memory://docs/cat.txt" in {hit.source for hit in store.search("cat", 9, where=where)}
        assert {hit.source for hit in store.search("cat", 9, where="path GLOB 'memory://**/deep/**'")} == {
            "memory://docs/deep/wing.txt"
        }
    with monkeypatch.context() as patch:
        patch.setattr(remote, "read", None)
        assert counts(run()) == (0, 0, 0, 3, 0)
    memory.pipe("memory://docs/cat.txt", b"the dog sleeps\n")
    memory.pipe("memory://docs/new.md", b"a zebra\n")
    memory.rm("memory://docs/deep/wing.txt")
    assert counts(run()) == (1, 1, 1, 1, 0)
    assert stored(in_folder)[0] == {"memory://docs/cat.txt", "memory://docs/locks.md", "memory://docs/new.md"}


def test_urls_and_local_paths_in_one_store(memory, run, in_folder):
    (in_folder / "docs").mkdir()
    (in_folder / "docs" / "cat.txt").write_text("the cat sleeps\n")
    run(in_folder / "docs", DOCS)
    sources, paths = stored(in_folder)
    assert {"docs/cat.txt", "memory://docs/cat.txt"} < sources
    assert paths == ["docs", "memory://docs"]
    assert counts(run(in_folder)) == (0, 0, 0, 1, 0)
    assert stored(in_folder)[0] == sources


def test_file_url_equals_the_path(run, in_folder):
    (in_folder / "docs").mkdir()
    (in_folder / "docs" / "cat.txt").write_text("the cat sleeps\n")
    run(place_of(f"file://{in_folder}/docs"))
    assert stored(in_folder)[0] == {f"file://{in_folder}/docs/cat.txt"}
    assert counts(run()) == (0, 0, 0, 1, 0)
    (in_folder / "docs" / "cat.txt").write_text("the cat runs\n")
    assert counts(run()) == (0, 1, 0, 0, 0)


def test_missing_url_is_removed_if_it_may_be_empty(memory, run, in_folder):
    memory.pipe("memory://other/a.txt", b"a fish swims\n")
    other = RemotePath("memory://other")
    run(DOCS, other)
    memory.rm("memory://other", recursive=True)
    report = run()
    assert counts(report) == (0, 0, 0, 3, 0)
    [warning] = report.scan.warnings
    assert warning == (
        "memory://other is missing: its files stay in the store, because its disk may not be mounted; to remove them, "
        "run 'ragembed index memory://other --allow-empty'"
    )
    assert counts(run(other, allow_empty=True)) == (0, 0, 1, 0, 0)
    assert stored(in_folder)[1] == ["memory://docs"]
    with pytest.raises(ConfigError, match="memory://other does not exist"):
        run(other)


def test_chunks_of_unreachable_folders_and_files_are_kept(memory, run, in_folder, away):
    run(DOCS)
    before = stored(in_folder)
    memory.pipe("memory://docs/cat.txt", b"the cat runs\n")
    away("memory://docs/deep")
    away("memory://docs/cat.txt")
    report = run()
    assert counts(report) == (0, 0, 0, 1, 2)
    assert report.scan.skipped == {
        "memory://docs/cat.txt": "cannot be read: no answer",
        "memory://docs/deep": "cannot be listed: no answer",
    }
    assert stored(in_folder) == before


def test_file_without_a_version_is_read_each_time_but_encoded_once(memory, run, in_folder, monkeypatch):
    monkeypatch.setattr(remote, "_version", lambda info, url: None)
    run(DOCS)
    with Store.open(in_folder / ".ragembed") as store:
        generation = store.status()["generation"]
    report = run()
    assert (counts(report), report.encoded, report.scan.touched) == ((0, 0, 0, 3, 0), 0, [])
    with Store.open(in_folder / ".ragembed") as store:
        assert store.status()["generation"] == generation
    memory.pipe("memory://docs/cat.txt", b"the dog sleeps\n")
    assert counts(run()) == (0, 1, 0, 2, 0)


def test_unknown_size_is_checked_after_reading(memory, run, monkeypatch):
    original = remote._status

    def unsized(info, url):
        status = original(info, url)
        return remote.RemoteStatus(status.st_mode, 0, status.st_mtime_ns)

    monkeypatch.setattr(remote, "_status", unsized)
    report = run(DOCS, options=IndexingOptions(max_bytes=30))
    assert counts(report) == (1, 0, 0, 0, 2)
    assert "over the limit of 30 bytes" in report.scan.skipped["memory://docs/locks.md"]


def test_command_line(memory, cli, in_folder, tiny_model, monkeypatch):
    memory.pipe("memory://docs/image.png", b"\x89\0\0\0")
    done = cli("index", "memory://docs/", "--model", tiny_model, "-v")
    assert f"skipped memory://docs/image.png: {unread_reason('image.png')}" in done.stderr
    found = json.loads(cli("query", "lock of the store", "-k", 1, "--mode", "lexical", "--json").stdout)["results"][0]
    assert found["path"] == "memory://docs/locks.md"
    assert "memory://docs/locks.md:1-3" in cli("query", "lock", "-k", 1, "--mode", "lexical").stdout
    assert "memory://docs/cat.txt" in cli("query", "cat", "--path", "memory://docs/*").stdout
    assert cli("files").stdout == cli("files", "memory://docs").stdout
    assert cli("files").stdout.splitlines() == [
        "memory://docs/cat.txt", "memory://docs/deep/wing.txt", "memory://docs/locks.md",
    ]  # fmt: skip
    assert "paths          memory://docs\n" in cli("status").stdout
    assert "the writer holds the lock" in cli("chunks", "memory://docs/locks.md").stdout
    assert "is a folder: expected a file" in cli("chunks", "memory://docs", exit_code=2).output
    assert "memory://docs/cat.txt" in cli("query", "lock", "--why", "memory://docs/cat.txt").stdout
    done = cli("delete", "memory://docs/deep")
    assert "1 file\n" in done.stdout
    assert "the next run of ragembed index adds it again" in done.stderr
    assert "would be saved in the store" in cli("index", "s3://me:hunter2@bucket", exit_code=2).output
    assert "hunter2" not in cli("index", "s3://me:hunter2@bucket", exit_code=2).output


@pytest.fixture
def server(in_folder):
    """A web server for the folder ``site``; returns the folder and its URL."""
    pytest.importorskip("aiohttp")
    site = in_folder / "site"
    site.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        refuse = None

        def __init__(self, *args):
            super().__init__(*args, directory=site)

        def send_head(self):
            if Handler.refuse is None:
                return super().send_head()
            self.send_error(Handler.refuse)
            return None

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield site, f"http://127.0.0.1:{listening.server_port}", Handler
        listening.shutdown()
        thread.join()


def test_page_of_a_web_server(server, run, in_folder):
    site, url, handler = server
    (site / "cat.md").write_text("# Cats\n\nthe cat sleeps\n")
    (site / "notes").write_text("the dog runs\n")
    page, notes = place_of(f"{url}/cat.md?v=1"), place_of(f"{url}/notes")
    assert counts(run(page, notes)) == (2, 0, 0, 0, 0)
    with Store.open(in_folder / ".ragembed") as store:
        hit = store.search("cat", 1, where="ext = 'md'")[0]
        assert (hit.source, hit.chunk.title) == (f"{url}/cat.md?v=1", "Cats")
    assert counts(run()) == (0, 0, 0, 2, 0)
    (site / "notes").write_text("the dog sleeps and runs\n")
    assert counts(run()) == (0, 1, 0, 1, 0)
    handler.refuse = 503
    report = run()
    assert counts(report) == (0, 0, 0, 0, 0)
    assert len(report.scan.warnings) == 2
    assert all("cannot be accessed: " in warning for warning in report.scan.warnings)
    assert all("; its files stay in the store" in warning for warning in report.scan.warnings)
    handler.refuse = None
    (site / "cat.md").unlink()
    assert "is missing: its files stay" in run().scan.warnings[0]
    assert counts(run(page, allow_empty=True)) == (0, 0, 1, 0, 0)
    assert stored(in_folder) == ({f"{url}/notes"}, [f"{url}/notes"])
