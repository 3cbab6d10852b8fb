"""Documents at URLs: their names, discovery below a URL, and errors of drivers."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

import pytest

fsspec = pytest.importorskip("fsspec")

from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402  imported only if fsspec is installed

from ragembed.documents import remote  # noqa: E402
from ragembed.documents.discovery import DiscoveryOptions, FileCandidate, discover, why  # noqa: E402
from ragembed.documents.places import RemotePath, absolute, exists, from_absolute, is_url, place_of  # noqa: E402
from ragembed.documents.readers.registry import unread_reason  # noqa: E402
from ragembed.errors import ConfigError, MissingExtraError  # noqa: E402

DOCS = RemotePath("memory://docs")


class FailingFileSystem(MemoryFileSystem):
    """Raises the exception in ``failures`` for a path, and records each call in ``calls``."""

    protocol = "failing"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    failures: ClassVar[dict[str, Exception]] = {}
    calls: ClassVar[list[tuple[str, str]]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.removeprefix("failing://"))

    def _record(self, method: str, path: str) -> str:
        path = self._strip_protocol(path)
        self.calls.append((method, path))
        if path in self.failures:
            raise self.failures[path]
        return path

    def info(self, path: str, **kwargs: Any) -> Any:
        return super().info(self._record("info", path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return super().ls(self._record("ls", path), detail)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return self.store[self._record("cat_file", path)].getvalue()[start:end]


fsspec.register_implementation("failing", FailingFileSystem, clobber=True)


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    for system in (MemoryFileSystem, FailingFileSystem):
        system.store.clear()
        system.pseudo_dirs[:] = [""]
    FailingFileSystem.failures.clear()
    FailingFileSystem.calls.clear()
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def write(url: str, content: str | bytes = "text\n") -> None:
    fsspec.filesystem(url.partition("://")[0]).pipe(url, content.encode() if isinstance(content, str) else content)


def read_below(root: RemotePath, options: DiscoveryOptions | None = None) -> list[str]:
    return [str(found.path).removeprefix(f"{root}/") for found in discover([root], options) if not found.skipped]


def reasons(root: RemotePath, options: DiscoveryOptions | None = None, *, pruned: bool = False) -> dict[str, str]:
    found = discover([root], options, pruned=pruned)
    return {str(item.path).removeprefix(f"{root}/"): item.skipped for item in found if item.skipped}


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket/docs", "s3://bucket/docs"),
        ("s3://bucket/docs/", "s3://bucket/docs"),
        ("S3://Bucket/Docs", "s3://Bucket/Docs"),
        ("s3://bucket/a:b@c/../d", "s3://bucket/a:b@c/../d"),
        ("memory://", "memory://"),
        ("file:///", "file:///"),
        ("file:///shared/x/../docs/", "file:///shared/docs"),
        ("s3://bucket/[x", "s3://bucket/[x"),
        ("https://example.org/guide/?page=1#top", "https://example.org/guide/?page=1"),
        ("hdfs://name:8020/docs@2", "hdfs://name:8020/docs@2"),
        ("sftp://me@host/docs", "sftp://me@host/docs"),
        ("abfs://container@account.dfs.core.windows.net/docs", "abfs://container@account.dfs.core.windows.net/docs"),
        ("github://org:repo@main/docs", "github://org:repo@main/docs"),
    ],
)
def test_urls_are_normalised(text: str, url: str) -> None:
    assert is_url(text)
    assert place_of(text) == RemotePath(url)
    assert place_of(url) == RemotePath(url)


@pytest.mark.parametrize("text", ["docs/a.md", "/docs", "C://docs", "a:b", "s3:/bucket", "://x"])
def test_other_texts_are_paths(text: str) -> None:
    assert place_of(text) == Path(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIA:hunter2@bucket/docs",
        "s3://AKIA:hun/ter2@bucket/docs",
        "ftp://me:1234@host/docs",
        "https://hunter2@host/docs",
        "https://host/a.md?X-Amz-Signature=hunter2",
        "https://host/a.md?v=1&sig=hunter2",
    ],
)
def test_url_with_a_secret_is_rejected_and_not_repeated(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"would be saved in the store and displayed: remove it from the URL"
    ) as raised:
        place_of(text)
    for secret in ("hunter2", "hun/ter2", "1234", "AKIA"):
        assert secret not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"), [("file://docs", "is relative"), ("zip://a.md::s3://bucket/a.zip", "is a chain of URLs")]
)
def test_unsupported_urls_are_rejected(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        place_of(text)


def test_name_and_suffix() -> None:
    place = RemotePath("s3://bucket/docs/a b#1.tar.GZ")
    assert (place.name, place.suffix, str(place)) == ("a b#1.tar.GZ", ".GZ", "s3://bucket/docs/a b#1.tar.GZ")
    page = RemotePath("https://example.org/a%20b.html?x=y.md")
    assert (page.name, page.suffix) == ("a b.html", ".html")
    assert str(RemotePath("memory://") / "docs" / "a.md") == "memory://docs/a.md"
    assert str(RemotePath("file:///") / "docs") == "file:///docs"


def test_files_below_a_url() -> None:
    for name in ("b/1.md", "a/2.md", "a/1.md", "c", "B", "a.txt", "empty", "node_modules/x.js", ".env"):
        write(f"memory://docs/{name}", "" if name == "empty" else "text\n")
    write("memory://docs2/no.md")
    assert read_below(DOCS) == ["B", "a/1.md", "a/2.md", "a.txt", "b/1.md", "c", "empty"]
    assert reasons(DOCS, pruned=True) == {
        ".env": "its name starts with a dot (use --hidden to include it)",
        "node_modules": "node_modules is never read",
    }
    first = next(discover([DOCS], DiscoveryOptions(include=("a/",))))
    assert (first.root, first.size, first.is_dir) == (DOCS, 5, False)
    assert [str(found.path) for found in discover([RemotePath("memory://docs/c")])] == ["memory://docs/c"]
    assert RemotePath("memory://docs2/no.md") in {found.path for found in discover([RemotePath("memory://")])}


def test_ignore_files_apply_in_every_folder() -> None:
    write("memory://docs/.gitignore", "*.log\nout/\n")
    write("memory://docs/sub/.ragembedignore", "!keep.log\nsecret.md\n")
    write("memory://docs/repository/.git/info/exclude", "mine.md\n")
    for name in ("a.md", "x.log", "out/y.md", "sub/keep.log", "sub/secret.md", "repository/mine.md", "repository/z"):
        write(f"memory://docs/{name}")
    assert read_below(DOCS) == ["a.md", "repository/z", "sub/keep.log"]
    assert reasons(DOCS)["sub/secret.md"] == "ignored by memory://docs/sub/.ragembedignore:2: secret.md"


def test_only_files_of_unknown_format_are_sampled() -> None:
    for name, content in (("image.png", b"\x89\0\0\0"), ("a.md", b"text"), ("README", b"text"), ("notes", b"text")):
        write(f"failing://docs/{name}", content)
    root = RemotePath("failing://docs")
    assert read_below(root) == ["README", "a.md", "notes"]
    assert reasons(root) == {"image.png": unread_reason("image.png")}
    read = {path for method, path in FailingFileSystem.calls if method == "cat_file"}
    assert read == {"/docs/image.png", "/docs/notes"}


def test_folders_are_listed_on_demand() -> None:
    for name in ("a/1.md", "b/1.md", "c/1.md"):
        write(f"failing://docs/{name}")
    found = discover([RemotePath("failing://docs")])
    next(found)
    assert [path for method, path in FailingFileSystem.calls if method == "ls"] == ["/docs", "/docs/a"]


def test_nested_urls_yield_each_file_once(tmp_path: Path) -> None:
    for name in ("a.md", "sub/b.md"):
        write(f"memory://docs/{name}")
    (tmp_path / "c.md").write_text("text")
    found = [found.path for found in discover([DOCS / "sub", tmp_path, DOCS, DOCS])]
    assert found == [DOCS / "sub" / "b.md", tmp_path / "c.md", DOCS / "a.md"]


def test_why() -> None:
    write("memory://docs/.gitignore", "*.log\n")
    for name in ("a.md", "x.log", "sub/b.md"):
        write(f"memory://docs/{name}")
    write("memory://other/a.md")

    def explain(name: str) -> str:
        return why(RemotePath(f"memory://{name}"), [DOCS, Path.cwd()])

    assert explain("docs/a.md") == "memory://docs/a.md is read"
    assert explain("docs/x.log") == "memory://docs/x.log is not read: ignored by memory://docs/.gitignore:1: *.log"
    assert explain("docs/sub") == "memory://docs/sub is a folder that is searched"
    assert explain("docs/no.md") == "memory://docs/no.md does not exist"
    assert explain("other/a.md").startswith("memory://other/a.md is not read: it is outside memory://docs, ")


def test_candidate_json_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("memory://docs/a.md", "of a URL")
    write("memory://docs/b.bin", b"\0\0\0")
    (tmp_path / "c.md").write_text("of a folder")
    monkeypatch.chdir(tmp_path)
    found = list(discover([DOCS, Path("c.md")]))
    kept = json.dumps([candidate.to_dict() for candidate in found])
    monkeypatch.chdir("/")
    again = [FileCandidate.from_dict(values) for values in json.loads(kept)]
    assert again[:2] == found[:2]
    assert again[2] == FileCandidate(tmp_path / "c.md", tmp_path / "c.md", 11, found[2].mtime_ns)
    assert [each.read()[0] for each in again if each.skipped is None] == [b"of a URL", b"of a folder"]
    assert from_absolute(absolute(again[0].path)).read_bytes() == b"of a URL"


def test_local_folder_as_file_url(tmp_path: Path) -> None:
    for name in ("a.md", "sub/b c#d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\n")
    (tmp_path / "link").symlink_to("a.md")
    root = place_of(f"file://{tmp_path}")
    assert read_below(root) == ["a.md", "sub/b c#d.md"]
    assert reasons(root) == {"link": "symbolic link, which is not followed below a URL"}
    assert (root / "sub" / "b c#d.md").read_bytes() == b"text\n"
    assert exists(root / "a.md")
    assert not exists(root / "no.md")


def test_unreadable_files_are_reported() -> None:
    for name in ("a.md", "locked/b.md", "notes", "rules/.gitignore", "rules/c.md", "z.md"):
        write(f"failing://docs/{name}")
    FailingFileSystem.failures.update(
        {
            "/docs/locked": PermissionError(13, "Forbidden"),
            "/docs/notes": RuntimeError("two\nlines"),
            "/docs/rules/.gitignore": TimeoutError(),
        }
    )
    root = RemotePath("failing://docs")
    assert read_below(root) == ["a.md", "z.md"]
    skipped = reasons(root)
    assert skipped["locked"] == "cannot be listed: Forbidden"
    assert skipped["notes"] == "cannot be opened: two lines"
    assert "the ignore file failing://docs/rules/.gitignore cannot be read (TimeoutError)" in skipped["rules"]
    assert {str(found.path) for found in discover([root]) if found.unseen} == {
        "failing://docs/locked", "failing://docs/notes", "failing://docs/rules",
    }  # fmt: skip


def test_names_with_double_colons_are_skipped() -> None:
    write("memory://docs/a.md")
    MemoryFileSystem.store["/docs/b::c"] = MemoryFileSystem.store["/docs/a.md"]
    assert reasons(DOCS) == {"b::c": "cannot be opened: its name contains '::', which fsspec reads as a chain of URLs"}


def test_missing_differs_from_unreachable() -> None:
    write("failing://docs/a.md")
    root = RemotePath("failing://docs")

    def refused(cause: BaseException | None, **codes: object) -> FileNotFoundError:
        error = FileNotFoundError("nothing here")
        error.__cause__ = cause
        for name, value in codes.items():
            setattr(cause, name, value)
        return error

    gone = [
        refused(None),
        refused(Exception(), status=404),
        refused(Exception(), response={"Error": {"Code": "NoSuchBucket"}}),
    ]
    for error in gone:
        FailingFileSystem.failures["/docs"] = error
        assert not exists(root)
        with pytest.raises(ConfigError, match="failing://docs does not exist: give a file or folder"):
            discover([root])
    away = [refused(Exception("Service Unavailable"), status=503), refused(OSError("no route")), TimeoutError("late")]
    for error in away:
        FailingFileSystem.failures["/docs"] = error
        with pytest.raises(OSError, match=r"Unavailable|no route|late") as raised:
            exists(root)
        assert not isinstance(raised.value, FileNotFoundError)
        with pytest.raises(ConfigError, match="failing://docs cannot be accessed: "):
            discover([root])


def test_unsupported_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="nosuch://docs cannot be accessed: fsspec does not support nosuch://"):
        discover([RemotePath("nosuch://docs")])
    fsspec.register_implementation("undriven", "no_such_package.sub.FileSystem", errtxt="Install it", clobber=True)
    with pytest.raises(ConfigError, match=r"driver is not installed: .*pip install .*no_such_package \(.*Install it"):
        discover([RemotePath("undriven://docs")])
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"reading memory://docs needs .*'fsspec'.*\[documents\]"):
        discover([DOCS])


NEW_YEAR = datetime(2026, 1, 1, tzinfo=timezone.utc)
NEW_YEAR_NS = int(NEW_YEAR.timestamp()) * 10**9


@pytest.mark.parametrize(
    "info",
    [
        {"mtime": NEW_YEAR.timestamp()},
        {"LastModified": NEW_YEAR},
        {"last_modified": NEW_YEAR.replace(tzinfo=None)},
        {"updated": "2026-01-01T00:00:00.000Z"},
        {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"},
        {"mtime": "some day", "LastModified": NEW_YEAR},
    ],
)
def test_times_of_all_drivers_are_parsed(info: dict[str, Any]) -> None:
    assert version(info) == NEW_YEAR_NS


def version(info: dict[str, Any]) -> int | None:
    return remote._status({"type": "file", "size": 1, **info}, "s3://bucket/a").st_mtime_ns


def test_versions_are_distinguished() -> None:
    one, two = (version({"LastModified": NEW_YEAR, "ETag": tag}) for tag in ("one", "two"))
    assert one != two
    assert one is not None
    assert two is not None
    assert one // 10**9 == two // 10**9 == NEW_YEAR_NS // 10**9
    one, two = (version({"ETag": tag}) for tag in ("one", "two"))
    assert one is not None
    assert one != two
    assert -(2**63) <= one < 0
    assert version({"ETag": "one"}) == one
    for info in ({}, {"mtime": None}, {"mtime": float("nan")}, {"mtime": 1e30}, {"mtime": "2026-99-99"}):
        assert version(info) is None


def test_kinds_and_sizes() -> None:
    def mode_and_size(**info: Any) -> tuple[int, int]:
        status = remote._status(info, "sftp://host/a")
        return status.st_mode, status.st_size

    assert mode_and_size(type="directory", size=None) == (stat.S_IFDIR, 0)
    assert mode_and_size(type="file", size=7) == (stat.S_IFREG, 7)
    assert mode_and_size(type="link", size=7) == (stat.S_IFLNK, 7)
    assert mode_and_size(type="other", size=0, islink=True, mode=stat.S_IFREG) == (stat.S_IFLNK, 0)
    assert mode_and_size(type="other", size=0, mode=stat.S_IFIFO) == (stat.S_IFIFO, 0)
