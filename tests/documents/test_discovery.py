from __future__ import annotations

import inspect
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ragembed.documents import trees
from ragembed.documents.discovery import DiscoveryOptions, FileCandidate, discover, why
from ragembed.documents.ignore import files_above
from ragembed.documents.readers.registry import unread_reason
from ragembed.errors import ConfigError

HIDDEN = DiscoveryOptions(hidden=True)


def write(path: Path, content: str | bytes = "text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_below(root: Path, options: DiscoveryOptions | None = None) -> list[str]:
    return [found.path.relative_to(root).as_posix() for found in discover([root], options) if not found.skipped]


def reasons(root: Path, options: DiscoveryOptions | None = None, *, pruned: bool = False) -> dict[str, str]:
    found = discover([root], options, pruned=pruned)
    return {item.path.relative_to(root).as_posix(): item.skipped for item in found if item.skipped}


def git(repository: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(repository),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def git_files(repository: Path) -> list[str]:
    listed = git(repository, "ls-files", "-z", "-co", "--exclude-standard").split("\0")[:-1]
    return sorted(listed, key=lambda name: name.split("/"))


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@needs_git
def test_same_files_as_git(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path / ".git/info/exclude", "excluded.txt\n")
    write(
        tmp_path / ".gitignore",
        "*.log\n!important.log\n/build/\nout/**\n!out/keep.txt\n**/cache/\na/**/z.txt\n*.t[mo]p\ndocs/*.html\nlogs\n!logs/x\n",
    )
    write(tmp_path / "docs/.gitignore", "!*.log\n/local.md\n*\n!*/\n!*.md\n!*.log\n/local.md\n")
    write(tmp_path / "docs/api/.gitignore", "secret.md\n")
    for name in (
        "a.log", "important.log", "a/important.log", "build/x.txt", "a/build/x.txt", "out/keep.txt", "out/b.txt",
        "cache/x", "a/b/cache/x", "a/z.txt", "a/b/c/z.txt", "z.txt", "x.tmp", "x.top", "docs/i.html",
        "docs/a.md", "docs/b.log", "docs/local.md", "docs/api/local.md", "docs/api/secret.md", "docs/api/x.txt",
        "docs/api/c.html", "logs/x", "a/logs", "excluded.txt", "a/excluded.txt", ".hidden/file", ".env", "plain.txt",
    ):  # fmt: skip
        write(tmp_path / name)
    expected = git_files(tmp_path)
    assert "docs/api/local.md" in expected
    assert "out/keep.txt" in expected
    assert "logs/x" not in expected
    assert read_below(tmp_path, HIDDEN) == expected


@needs_git
@pytest.mark.parametrize("seed", range(15))
def test_same_files_as_git_for_random_rules(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "b", "ab", "a.x", "b.y", "c d"]
    parts = [*names, "*", "**", "a*", "*.x", "?", "[ab]", "[!a]*", "*b"]
    git(tmp_path, "init", "-q")
    folders = [tmp_path.joinpath(*rng.choices(names, k=rng.randint(0, 4))) for _ in range(12)]
    for folder in folders:
        if not any(parent.is_file() for parent in (folder, *folder.parents)):
            for name in names:
                if not (folder / name).exists():
                    write(folder / name)
    files = [path for path in tmp_path.rglob("*") if path.is_dir() and ".git" not in path.parts]
    for place in (tmp_path / ".git/info/exclude", *(folder / ".gitignore" for folder in [tmp_path, *files])):
        lines = [
            rng.choice(["", "", "!"]) + rng.choice(["", "", "/"])
            + "/".join(rng.choices(parts, k=rng.randint(1, 3))) + rng.choice(["", "", "/"])
            for _ in range(rng.randint(0, 5))
        ]  # fmt: skip
        write(place, "\n".join(lines) + "\n")
    assert read_below(tmp_path, HIDDEN) == git_files(tmp_path)


@needs_git
def test_same_files_as_git_below_the_root_of_a_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path / ".gitignore", "*.log\n/src/*.o\nsrc/gen/\n")
    for name in ("a.log", "m.o", "m.c", "gen/x.c", "lib/gen/x.c", "lib/m.o"):
        write(tmp_path / "src" / name)
    assert read_below(tmp_path / "src") == git_files(tmp_path / "src") == ["lib/gen/x.c", "lib/m.o", "m.c"]


@needs_git
def test_a_python_project(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path / ".gitignore", "__pycache__/\n*.py[cod]\n*.egg-info/\n.venv/\nbuild/\n.ragembed/\n")
    kept = ["LICENSE", "README.md", "cli/__init__.py", "cli/commands/search.py", "pyproject.toml", "tests/test_a.py"]
    for name in (*kept, "cli/__pycache__/a.pyc", "x.egg-info/PKG-INFO", "build/lib/a.py", ".ragembed/store.db"):
        write(tmp_path / name)
    write(tmp_path / "env/pyvenv.cfg")
    write(tmp_path / "env/lib/module.py")
    write(tmp_path / "web/node_modules/x/index.js")
    assert read_below(tmp_path) == kept
    assert reasons(tmp_path, HIDDEN, pruned=True) == {
        ".git": ".git is never read",
        ".ragembed": ".ragembed is never read",
        "build": f"ignored by {(tmp_path / '.gitignore').as_posix()}:5: build/",
        "cli/__pycache__": "__pycache__ is never read",
        "env": "a Python virtual environment (contains pyvenv.cfg)",
        "web/node_modules": "node_modules is never read",
        "x.egg-info": f"ignored by {(tmp_path / '.gitignore').as_posix()}:3: *.egg-info/",
    }


def test_paths_are_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = write(tmp_path / "docs/a.md", "12345").stat()
    write(tmp_path / "docs/.gitignore", "*.log\n")
    write(tmp_path / "docs/b.log")
    monkeypatch.chdir(tmp_path)
    docs = Path("docs")
    assert list(discover([docs])) == [
        FileCandidate(
            docs / ".gitignore",
            docs,
            6,
            (docs / ".gitignore").stat().st_mtime_ns,
            "its name starts with a dot (use --hidden to include it)",
            ignored=True,
        ),
        FileCandidate(docs / "a.md", docs, 5, status.st_mtime_ns),
        FileCandidate(
            docs / "b.log",
            docs,
            5,
            (docs / "b.log").stat().st_mtime_ns,
            "ignored by docs/.gitignore:1: *.log",
            ignored=True,
        ),
    ]
    assert [str(found.path) for found in discover([Path()]) if not found.skipped] == [str(docs / "a.md")]


def test_files_are_sorted_and_folders_listed_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/1", "a/2", "a/1", "c", "B", "a.txt", "d/1"):
        write(tmp_path / name)
    listed: list[str] = []
    list_folder = trees.list_folder

    def recording(path: Path, root: Path) -> list[str]:
        listed.append(path.name)
        return list_folder(path, root)

    monkeypatch.setattr(trees, "list_folder", recording)
    found = discover([tmp_path])
    assert [next(found).path.relative_to(tmp_path).as_posix() for _ in range(3)] == ["B", "a/1", "a/2"]
    assert listed == [tmp_path.name, "a"]
    assert [item.path.relative_to(tmp_path).as_posix() for item in found] == ["a.txt", "b/1", "c", "d/1"]


def test_hidden_files(tmp_path: Path) -> None:
    for name in (".env", ".github/x.yml", "a"):
        write(tmp_path / name)
    assert read_below(tmp_path) == ["a"]
    assert read_below(tmp_path, HIDDEN) == [".env", ".github/x.yml", "a"]
    assert set(reasons(tmp_path)) == {".env"}
    assert set(reasons(tmp_path, pruned=True)) == {".env", ".github"}


def test_store_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "index/store.db")
    write(tmp_path / "index/segments/1.json")
    write(tmp_path / "other/store.db")
    assert read_below(tmp_path) == ["other/store.db"]
    assert reasons(tmp_path, pruned=True) == {"index": "a ragembed store (contains store.db and segments)"}


def test_exclude_and_include(tmp_path: Path) -> None:
    for name in ("a.md", "a.txt", "docs/b.md", "docs/old/c.md", "docs/d.rst", "src/docs/e.txt"):
        write(tmp_path / name)
    write(tmp_path / ".gitignore", "a.md\n")
    assert read_below(tmp_path, DiscoveryOptions(exclude=("*.txt", "/docs/old/"))) == ["docs/b.md", "docs/d.rst"]
    assert read_below(tmp_path, DiscoveryOptions(include=("*.md",))) == ["docs/b.md", "docs/old/c.md"]
    assert read_below(tmp_path, DiscoveryOptions(include=("docs/", "!/docs/old/"))) == [
        "docs/b.md", "docs/d.rst", "src/docs/e.txt",
    ]  # fmt: skip
    assert read_below(tmp_path, DiscoveryOptions(include=("*.md",), exclude=("old",))) == ["docs/b.md"]
    assert read_below(tmp_path, DiscoveryOptions(include=(".*",))) == []
    skipped = reasons(tmp_path, DiscoveryOptions(include=("docs/", "!/docs/old/"), exclude=("*.rst",)))
    assert skipped["a.txt"] == "matches no --include pattern"
    assert skipped["docs/old/c.md"] == "excluded by --include !/docs/old/"
    assert skipped["docs/d.rst"] == "ignored by --exclude *.rst"


@pytest.mark.parametrize("options", [DiscoveryOptions(exclude=("/",)), DiscoveryOptions(include=("/",))])
def test_invalid_globs_raise_immediately(tmp_path: Path, options: DiscoveryOptions) -> None:
    with pytest.raises(ConfigError, match="clude '/' is not a pattern"):
        discover([tmp_path], options)


def test_ignored_files_differ_from_unreadable_files(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "*.log\n")
    for name in ("a.log", "b.txt", "c.md", "node_modules/d.md", "env/pyvenv.cfg"):
        write(tmp_path / name)
    write(tmp_path / "image.md", b"\0\0\0")
    (tmp_path / "link").symlink_to("nothing")
    found = discover([tmp_path], DiscoveryOptions(include=("*.md",)), pruned=True)
    skipped = {item.path.name: item.ignored for item in found if item.skipped}
    assert skipped == {
        ".gitignore": True, "a.log": True, "b.txt": True, "node_modules": True, "env": True,
        "image.md": False, "link": False,
    }  # fmt: skip


def test_large_files_are_skipped(tmp_path: Path) -> None:
    write(tmp_path / "ten", "x" * 10)
    write(tmp_path / "eleven", "x" * 11)
    assert reasons(tmp_path, DiscoveryOptions(max_bytes=10)) == {
        "eleven": "11 bytes is over the limit of 10 bytes (--max-size)"
    }
    with (tmp_path / "large").open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    assert reasons(tmp_path) == {"large": "200.0 MB is over the limit of 20.0 MB (--max-size)"}
    with (tmp_path / "large").open("wb") as file:
        file.truncate(20 * 1024 * 1024 + 1)
    assert reasons(tmp_path) == {"large": "20,971,521 bytes is over the limit of 20,971,520 bytes (--max-size)"}


def test_binary_files_are_skipped(tmp_path: Path) -> None:
    for name in ("image.png", "paper.PDF", "memo.docx", "utf16.txt"):
        write(tmp_path / name, "äöü\n".encode("utf-16") if name == "utf16.txt" else b"\x89\0\0\0")
    write(tmp_path / "empty.txt", b"")
    assert read_below(tmp_path) == ["empty.txt", "memo.docx", "paper.PDF", "utf16.txt"]
    assert reasons(tmp_path) == {"image.png": unread_reason("a.png")}


def test_symbolic_links_are_skipped(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root / "real/a.txt")
    outside = write(tmp_path / "outside.txt")
    (root / "to_file").symlink_to("real/a.txt")
    (root / "to_folder").symlink_to("real", target_is_directory=True)
    (root / "up").symlink_to(root, target_is_directory=True)
    (root / "leaves").symlink_to(outside)
    (root / "dangling").symlink_to("nothing")
    (root / "circle").symlink_to("circle")
    assert read_below(root) == ["real/a.txt"]
    skipped = reasons(root)
    assert skipped == {
        "to_file": f"symbolic link to {root / 'real/a.txt'}, which is listed separately",
        "to_folder": f"symbolic link to {root / 'real'}, which is listed separately",
        "up": f"symbolic link to {root}, which is listed separately",
        "leaves": f"symbolic link to {outside.resolve()}, outside the folder",
        "dangling": "broken symbolic link",
        "circle": f"symbolic link that cannot be followed: {os.strerror(40)}",
    }


def swap(path: Path, outside: Path, kind: str) -> None:
    """Replace the file ``path`` by a link, a pipe, or a link of its folder to ``outside``, which has the same file."""
    if kind == "link":
        path.unlink()
        path.symlink_to(outside / path.name)
    elif kind == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        shutil.rmtree(path.parent)
        path.parent.symlink_to(outside, target_is_directory=True)


LINKED = "it is a symbolic link or below one, and links are not followed"


@pytest.mark.parametrize(
    ("kind", "reason"), [("link", LINKED), ("pipe", "it is not a regular file"), ("linked folder", LINKED)]
)
@pytest.mark.parametrize("moment", ["sampling", "reading"])
def test_file_replaced_after_discovery_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str, moment: str
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    file = write(root / "sub/a.txt")
    write(outside / "a.txt", "secret")
    sample = trees.LocalTree.sample

    def swap_first(tree: trees.LocalTree, relative: str) -> bytes:
        swap(file, outside, kind)
        return sample(tree, relative)

    if moment == "sampling":
        monkeypatch.setattr(trees.LocalTree, "sample", swap_first)
    (candidate,) = discover([root])
    if moment == "sampling":
        assert candidate.skipped == f"cannot be opened: {reason}"
        return
    swap(file, outside, kind)
    with pytest.raises(OSError, match=reason):
        candidate.read()


def test_folder_replaced_by_a_link_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    file = write(root / "sub/deep/a.txt")
    write(outside / "deep/b.txt", "secret")
    entries = trees.LocalTree.entries

    def swap_first(tree: trees.LocalTree, relative: str) -> object:
        if relative == "sub/deep":
            swap(file.parent, outside, "linked folder")
        return entries(tree, relative)

    monkeypatch.setattr(trees.LocalTree, "entries", swap_first)
    assert reasons(root) == {"sub/deep": f"cannot be listed: {LINKED}"}


def test_read_returns_the_current_mtime(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "old")
    (candidate,) = discover([tmp_path])
    file.write_text("newer")
    os.utime(file, ns=(5, 5))
    assert candidate.read() == (b"newer", 5)


@pytest.mark.parametrize("name", [".git", ".gitignore", ".ragembedignore", "note.md"])
def test_named_pipes_do_not_block(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    write(tmp_path / "sub/a.md")
    os.mkfifo(tmp_path / "sub" / name)
    assert read_below(tmp_path) == ["sub/a.md"]
    assert read_below(tmp_path / "sub") == ["a.md"]


def test_given_paths_are_always_followed(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "*\n")
    write(tmp_path / ".git/info/exclude", "")
    write(tmp_path / "node_modules/a.js")
    inner = write(tmp_path / ".hidden/b.txt")
    image = write(tmp_path / "image.png", b"\0\0\0")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / ".hidden", target_is_directory=True)
    file_link = tmp_path / "file_link"
    file_link.symlink_to(inner)
    assert list(discover([tmp_path / ".gitignore"])) == [
        FileCandidate(tmp_path / ".gitignore", tmp_path / ".gitignore", 2, (tmp_path / ".gitignore").stat().st_mtime_ns)
    ]
    assert [found.skipped for found in discover([image])] == [unread_reason("a.png")]
    assert [found.path for found in discover([file_link])] == [file_link]
    assert [found.skipped for found in discover([inner], DiscoveryOptions(max_bytes=1))] == [
        "5 bytes is over the limit of 1 bytes (--max-size)"
    ]
    (tmp_path / ".gitignore").write_text("")
    write(tmp_path / "env/pyvenv.cfg")
    assert read_below(tmp_path / "env") == ["pyvenv.cfg"]
    assert read_below(tmp_path / "node_modules") == ["a.js"]
    assert read_below(tmp_path / ".hidden") == ["b.txt"]
    assert read_below(link) == ["b.txt"]


def test_overlapping_paths_yield_each_file_once(tmp_path: Path) -> None:
    for name in ("docs/a", "docs/sub/b", "docs/sub/c.log", "docs/z"):
        write(tmp_path / name)
    write(tmp_path / "docs/.gitignore", "sub/\n*.log\n")
    docs, sub = tmp_path / "docs", tmp_path / "docs/sub"
    log = sub / "c.log"
    for paths in ([docs, sub, log], [log, sub, docs, docs], [docs / ".." / "docs", docs, sub, log]):
        found = [item.path.resolve() for item in discover(paths) if not item.skipped]
        assert sorted(found) == [docs / "a", sub / "b", log, docs / "z"]


@pytest.mark.parametrize(("name", "problem"), [("nothing", "does not exist"), ("dangling", "broken symbolic link")])
def test_missing_path_is_an_error(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=f"{name} .*{problem}"):
        discover([tmp_path, tmp_path / name])


def test_special_files_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path / "a")
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        listener.bind("socket")
    finally:
        os.chdir(here)
        listener.close()
    assert read_below(tmp_path) == ["a"]
    assert reasons(tmp_path) == {"pipe": "a named pipe, not a file", "socket": "a socket, not a file"}
    assert [found.skipped for found in discover([tmp_path / "pipe"])] == ["a named pipe, not a file"]
    assert [found.skipped for found in discover([Path(os.devnull)])] == ["a device, not a file"]


def test_non_unicode_names_are_skipped(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    try:
        write(tmp_path / name)
        write(tmp_path / (name + "_folder") / "a.txt")
    except OSError:
        pytest.skip("the file system accepts only valid Unicode names")
    (tmp_path / "link").symlink_to(name)
    assert reasons(tmp_path) == {
        name: "its name is not valid Unicode",
        name + "_folder": "its name is not valid Unicode",
        "link": f"symbolic link to {tmp_path}/caf\\udce9, which is listed separately",
    }
    assert [found.skipped for found in discover([tmp_path / name])] == ["its name is not valid Unicode"]
    assert why(tmp_path / name, [tmp_path]) == f"{tmp_path}/caf\\udce9 is not read: its name is not valid Unicode"


def test_unreadable_files_are_reported(tmp_path: Path, refuse_to_open: Callable[..., None]) -> None:
    write(tmp_path / "locked/a.txt")
    write(tmp_path / "secret.txt")
    write(tmp_path / "open/b.txt")
    refuse_to_open("locked", "secret.txt")
    assert read_below(tmp_path) == ["open/b.txt"]
    assert reasons(tmp_path) == {
        "locked": "cannot be listed: Permission denied",
        "secret.txt": "cannot be opened: Permission denied",
    }
    assert [found.is_dir for found in discover([tmp_path])] == [True, False, False]


@pytest.mark.parametrize("name", [".gitignore", ".ragembedignore"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (3 << 30, "cannot be read (it has more than 1,000,000 bytes): correct or remove it"),
        (b"*.log\n" * 10_001, "has more than 10,000 lines, or one of more than 4,096 characters: shorten it"),
        (b"a" * 4_097, "has more than 10,000 lines, or one of more than 4,096 characters: shorten it"),
    ],
)
def test_folder_with_an_ignore_file_over_a_limit_is_skipped(
    tmp_path: Path, name: str, content: bytes | int, reason: str
) -> None:
    write(tmp_path / "a.md")
    write(tmp_path / "sub/private.md")
    ignore = write(tmp_path / "sub" / name, b"" if isinstance(content, int) else content)
    if isinstance(content, int):
        os.truncate(ignore, content)  # a sparse file
    assert read_below(tmp_path) == ["a.md"]
    assert reasons(tmp_path)["sub"] == f"the ignore file {ignore} {reason}"


JUNK = [
    b"\0",
    b"a\0b",
    b"\xff\xfe\n",
    b"a" * 300,
    b"b/" * 3_000,
    b".",
    b".git",
    b"loop",
    b"../sub/.git",
    b"/dev/zero",
    b"",
]
"""What a path in a file of git can be, besides the path of a folder."""


@pytest.mark.parametrize("place", ["parent", "root", "sub"])
@pytest.mark.parametrize("name", [".git", "commondir", "excluded"])
@pytest.mark.parametrize("junk", [*JUNK, None])
def test_no_file_of_git_stops_a_walk(tmp_path: Path, place: str, name: str, junk: bytes | None) -> None:
    root = tmp_path / "parent/root"
    write(root / "a.md")
    write(root / "sub/b.md")
    repository = {"parent": root.parent, "root": root, "sub": root / "sub"}[place]
    (repository / "loop").symlink_to("loop")
    file = repository / ".git" if name == ".git" else tmp_path / "git" / name
    write(file, b"gitdir: " * (name == ".git") + (junk or b""))
    if name == "commondir":
        write(repository / ".git", f"gitdir: {file.parent}\n")
    elif name == "excluded":
        (repository / ".git/info").mkdir(parents=True)
        (repository / ".git/info/exclude").symlink_to(
            os.fsdecode((junk or b"").replace(b"\0", b"")[:4_000] or "/dev/zero")
        )
    elif junk is None:
        file.unlink()
        os.mkfifo(file)
    assert [path for path in read_below(root) if path.endswith(".md")] == ["a.md", "sub/b.md"]
    assert files_above(root) or place == "sub"


def test_folder_with_unreadable_ignore_file_is_skipped(tmp_path: Path, refuse_to_open: Callable[..., None]) -> None:
    write(tmp_path / "docs/.gitignore", "secret.txt\n")
    write(tmp_path / "docs/secret.txt")
    write(tmp_path / "a.txt")
    refuse_to_open(".gitignore")
    assert read_below(tmp_path) == ["a.txt"]
    assert "docs/.gitignore cannot be read (Permission denied)" in reasons(tmp_path)["docs"]


def test_file_deleted_during_the_walk(tmp_path: Path) -> None:
    write(tmp_path / "a")
    gone = write(tmp_path / "b")
    found = discover([tmp_path])
    assert next(found).skipped is None
    gone.unlink()
    assert next(found).skipped == f"cannot be accessed: {os.strerror(2)}"


def test_deep_trees_need_no_recursion(tmp_path: Path) -> None:
    folders = [tmp_path]
    for _ in range(300):
        folders.append(folders[-1] / "d")
        folders[-1].mkdir()
    deep = write(folders[-1] / "deep.txt")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(context=0)) + 150)
    try:
        assert [item.path for item in discover([tmp_path])] == [deep]
    finally:
        sys.setrecursionlimit(limit)


def test_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    docs = Path("docs")
    write(docs / ".gitignore", "*.log\n!keep.log\nout/\n")
    for name in ("a.md", "x.log", "keep.log", "out/deep/y.md", ".h/z.md", "sub/.gitignore", "sub/x.log"):
        write(docs / name, "")
    write(Path("elsewhere.md"))
    (docs / "link").symlink_to("sub", target_is_directory=True)

    def explain(path: str, *paths: str) -> str:
        return why(Path(path), [Path(name) for name in paths or ("docs",)])

    assert explain("docs/a.md") == "docs/a.md is read"
    assert explain("docs/x.log") == "docs/x.log is not read: ignored by docs/.gitignore:1: *.log"
    assert explain("docs/keep.log") == "docs/keep.log is read: re-included by docs/.gitignore:2: !keep.log"
    assert explain("docs/out") == "docs/out is not read: ignored by docs/.gitignore:3: out/"
    assert (
        explain("docs/out/deep/y.md")
        == "docs/out/deep/y.md is not read, because docs/out is not read: ignored by docs/.gitignore:3: out/"
    )
    assert explain("docs/.h/z.md").endswith(
        "because docs/.h is not read: its name starts with a dot (use --hidden to include it)"
    )
    assert explain("docs/link/x.log").startswith(
        "docs/link/x.log is not read, because docs/link is not read: symbolic link"
    )
    assert explain("docs/sub") == "docs/sub is a folder that is searched"
    assert explain("docs") == "docs is a folder that is searched"
    assert explain("elsewhere.md", "docs", "docs/sub") == "elsewhere.md is not read: it is outside docs, docs/sub"
    assert explain("docs/missing.md") == "docs/missing.md does not exist"
    assert explain("docs/sub/x.log", "docs", "docs/sub/x.log") == "docs/sub/x.log is read"
    assert explain("docs/out/deep/y.md", "docs", "docs/out") == "docs/out/deep/y.md is read"
    assert why(Path("docs/a.md").absolute(), [docs]) == f"{tmp_path}/docs/a.md is read"
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        explain("docs/a.md", "nowhere")


def test_why_agrees_with_discover(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore", "*.log\n!a.log\nout/\n")
    for name in ("a.log", "b.log", "c", "out/d", ".e", "f/g/h.log", "f/g/i"):
        write(tmp_path / name)
    read = {found.path for found in discover([tmp_path]) if not found.skipped}
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert {path for path in files if "is read" in why(path, [tmp_path])} == read
    assert 0 < len(read) < len(files)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("poetry.lock", "x", "a lock file of a package manager"),
        ("package-lock.json", "{}", "a lock file of a package manager"),
        ("app.js.map", "{}", "a source map"),
        ("app.min.css", "a", "minified code"),
        ("app.js", "/* licence\n*/\n" + "a=1;" * 1_000, "minified code"),
        ("api.go", "// Code generated by protoc-gen-go. DO NOT EDIT.\n", "generated code, as its first lines say"),
        ("api_pb2.py", "# Generated by protoc.  DO NOT EDIT!\n", "generated code, as its first lines say"),
        ("a.ts", "/**\n * @generated\n */\n", "generated code, as its first lines say"),
        ("a.sql", "-- This file is automatically generated\n", "generated code, as its first lines say"),
        ("a.py", "# Do not edit the list below by hand\nmark = '@generated'\n", None),
        ("page.1", '.\\" DO NOT MODIFY THIS FILE!  It was generated by help2man.\n', None),
        ("app.js", "a = 1;\n" * 1_000, None),
        ("data.json", "[1" + ",1" * 5_000 + "]", None),
    ],
)
def test_generated_files_are_skipped(tmp_path: Path, name: str, text: str, reason: str | None) -> None:
    (tmp_path / name).write_text(text)
    (found,) = discover([tmp_path])
    assert found.skipped == (f"{reason} (the rule !{name} includes it)" if reason else None)
    (given,) = discover([tmp_path / name])
    assert given.skipped is None
    (tmp_path / ".ragembedignore").write_text(f"!{name}\n")
    assert [each.skipped for each in discover([tmp_path]) if each.path.name == name] == [None]
