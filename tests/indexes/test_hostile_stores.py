"""A store from a stranger: it is refused with one error, and nothing outside its folder is read or written."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig, Store
from ragembed.errors import ModelError, RagembedError, StoreDamagedError, StoreError
from ragembed.indexes.integrity import Part
from ragembed.indexes.lexical.postings import PostingsBlock
from ragembed.indexes.storage import posting_files
from ragembed.indexes.storage.copying import copy_store
from ragembed.indexes.verification import verify_store
from tests.conftest import WORDS, KnownEncoder, record
from tests.indexes.tampering import edit

SECONDS = 60


@pytest.fixture(autouse=True)
def _limited() -> Iterator[None]:
    """Interrupt a test that hangs, for example on a named pipe."""

    def interrupt(*_: object) -> None:
        raise TimeoutError(f"the test took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory, tiny_config: EmbedderConfig) -> tuple[Path, Path]:
    """A store with the vectors of an encoder, and one with an embedder; both have postings."""
    folder = tmp_path_factory.mktemp("hostile")
    texts = [f"text {number} of {word}" for number, word in enumerate(WORDS)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(posting_files, "LEAST_CHUNKS", 1)
        for name, embedder in (("known", KnownEncoder()), ("fitted", Embedder(tiny_config).fit(texts))):
            with Store.create(folder / name, embedder) as store:
                store.add([record(f"id{i}", text, metadata={"i": i}) for i, text in enumerate(texts)])
                store.delete(["id3"])
    return folder / "known", folder / "fitted"


@pytest.fixture
def known(templates: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(templates[0], tmp_path / "store"))


@pytest.fixture
def fitted(templates: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(templates[1], tmp_path / "store"))


def only(store: Path, pattern: str) -> Path:
    [file] = store.glob(pattern)
    return file


def refusals(path: Path, embedder: KnownEncoder | None) -> list[str]:
    """Search, list, verify and copy a store; return the messages of the errors and problems."""
    found = []

    def attempt(act: Callable[[], object]) -> None:
        try:
            act()
        except RagembedError as error:
            found.append(str(error))

    def search() -> None:
        with Store.open(path, embedder) as store:
            for mode in ("dense", "lexical", "hybrid"):
                attempt(lambda mode=mode: store.search("text of lock", 5, mode))  # type: ignore[misc]
            attempt(lambda: list(store.chunks()))

    attempt(search)
    attempt(lambda: found.extend(problem.message for problem in verify_store(path, embedder).problems))
    attempt(lambda: copy_store(path, path.with_name("copy")))
    return found


def as_pipe(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def as_device(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to("/dev/zero")


def as_link(file: Path) -> None:
    target = file.parents[3] / f"outside-{file.name}"
    target.write_bytes(file.read_bytes() if file.exists() else b"1")
    file.unlink(missing_ok=True)
    file.symlink_to(target)


CHANGES = (as_pipe, as_device, as_link)
FILES = ("segments/*/index.faiss", "segments/*/raw.f16", "derived/postings-*.safetensors", "store.db")
FILES += ("embedders/*/config.json", "embedders/*/state.safetensors")
NOTES = ("store.db-wal", "store.db-shm", "store.db-generation", "writer.pid", "watcher.json")


def some_and_all(names: tuple[str, ...]) -> list[object]:
    """Each name with one of the changes, and in the slow tests with each of them."""
    some = [(name, CHANGES[i % 3]) for i, name in enumerate(names)]
    return [*some, *(pytest.param(name, each, marks=pytest.mark.slow) for name in names for each in CHANGES)]


@pytest.mark.parametrize(("pattern", "change"), some_and_all(FILES))
def test_only_regular_files_are_read(fitted: Path, pattern: str, change: Callable[[Path], None]) -> None:
    change(only(fitted, pattern))
    found = refusals(fitted, None)
    assert found
    expected = ("regular file", "symbolic link", "no store at")
    assert any(part in message for part in expected for message in found), found


@pytest.mark.parametrize(("name", "change"), some_and_all(NOTES))
def test_files_beside_the_database_are_regular_files(known: Path, name: str, change: Callable[[Path], None]) -> None:
    change(known / name)
    found = refusals(known, KnownEncoder())
    if name.startswith("store.db"):
        assert any("regular file" in message or "symbolic link" in message for message in found), found
    else:
        assert found == []  # These files are notes for people: a store works without them.


def test_lock_that_is_a_link_is_refused(known: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (known / "writer.lock").unlink()
    (known / "writer.lock").symlink_to(victim)
    with (
        Store.open(known, KnownEncoder()) as store,
        pytest.raises(StoreError, match=r"writer\.lock is a symbolic link"),
    ):
        store.add([record("more", "more")])
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("pattern", ["segments/*", "derived/postings-*", "embedders/*", "segments"])
def test_link_to_a_folder_is_reported_and_not_copied(fitted: Path, tmp_path: Path, pattern: str) -> None:
    folder = only(fitted, pattern)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert verify_store(fitted).problems
    with pytest.raises((StoreDamagedError, StoreError), match="symbolic link"):
        copy_store(fitted, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_rollback_journal_is_refused(known: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"  # SQLite deletes the file that a journal names when it rolls back.
    victim.write_text("mine")
    (known / "store.db-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(600))
    with pytest.raises(StoreDamagedError, match="does not belong to a store"):
        Store.open(known, KnownEncoder())
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE chunks SET headings = 'x'", "'x' for 'headings': expected valid JSON"),
        ("UPDATE chunks SET headings = '[1]'", "for headings: expected a list of texts"),
        ("UPDATE chunks SET metadata = '[1]'", "for metadata: expected a JSON object"),
        (f"UPDATE chunks SET metadata = '{'[' * 20_000}'", "expected valid JSON"),
        ("UPDATE chunks SET start_line = 'first'", "'first' for a chunk: expected a value of type int"),
        ("UPDATE chunks SET title = x'ff'", "for a chunk: expected a value of type str"),
        ("UPDATE chunks SET row = 'x' WHERE id = 'id5'", "store's database|is damaged"),
        ("UPDATE vectors SET position = 10000 WHERE row = 5", "the positions of the vectors of segment 1 are not"),
        ("UPDATE vectors SET position = 'x' WHERE row = 5", "values of the wrong type"),
        ("UPDATE vectors SET segment = 99 WHERE row = 5", "refers to a row of segments that does not exist"),
        ("UPDATE segments SET rows = 1000000000000", "expected a FAISS index of kind flat|wrong size"),
        ("UPDATE segments SET dim = 1000000000", "a segment of 61 vectors of dimension 1,000,000,000"),
        ("UPDATE segments SET kind = x'00'", "for a segment: expected a value of type str"),
        ("UPDATE segments SET kind = 'SQ8' || hex(zeroblob(50000))", "unknown kind of index"),
        ("UPDATE derived SET sha256 = 5", "does not match its committed hash"),
        ("UPDATE meta SET value = '5' WHERE key = 'embedder'", "does not name the embedder"),
        (f"UPDATE meta SET value = '{'[' * 20_000}' WHERE key = 'embedder'", "expected valid JSON"),
    ],
)
def test_values_of_other_types_are_refused(known: Path, statement: str, expected: str) -> None:
    edit(known, statement)
    assert any(part in message for part in expected.split("|") for message in refusals(known, KnownEncoder()))


_META_KEYS = (
    *("analyzer", "detected_language", "dim", "embedder", "fusion", "generation", "index", "index_check"),
    *("index_choice", "indexing", "part", "relevance", "unfinished", "wanted", "words"),
)


@pytest.mark.parametrize(
    "values",
    [('"x"', "{"), pytest.param(("[[1]]", '{"a": {"b": [null]}}', "-1"), marks=pytest.mark.slow)],
    ids=["some", "others"],
)
@pytest.mark.parametrize("key", _META_KEYS)
def test_values_of_meta_are_checked_where_they_are_read(fitted: Path, key: str, values: tuple[str, ...]) -> None:
    """Every operation on the store gives a result or one error; a value that is read is refused by one of them."""

    def status() -> list[str]:
        try:
            with Store.open(fitted) as store:
                store.status(), store.index_choice(), store.index_check(), store.fusion
        except RagembedError as error:
            return [str(error)]
        return []

    with closing(sqlite3.connect(fitted / "store.db")) as connection:
        read = connection.execute("SELECT 1 FROM meta WHERE key = ?", (key,)).fetchone() is not None
    for value in values:
        edit(fitted, ("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value)))
        refused = [*status(), *refusals(fitted, None)]
        assert refused or not read or value == '{"a": {"b": [null]}}'
        shutil.rmtree(fitted.with_name("copy"), ignore_errors=True)


def test_high_row_takes_no_memory(known: Path) -> None:
    edit(
        known,
        "PRAGMA foreign_keys = OFF",
        "UPDATE vectors SET row = 2147483648 WHERE row = (SELECT max(row) FROM vectors)",
        "UPDATE chunks SET row = 2147483648 WHERE row = (SELECT max(row) FROM chunks)",
        "UPDATE sqlite_sequence SET seq = 2147483648 WHERE name = 'vectors'",
    )
    expected = "has a vector with the row 2,147,483,648, but only 61 vectors"
    assert any(expected in message for message in refusals(known, KnownEncoder()))


def with_hash(store: Path, file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    edit(store, ("UPDATE derived SET sha256 = ? WHERE file = ?", (digest, file.name)))


def test_positions_of_postings_are_checked(known: Path) -> None:
    file = only(known, "derived/postings-*.safetensors")
    positions = PostingsBlock.read(file).positions
    data = file.read_bytes()
    at = data.index(positions.tobytes())
    file.write_bytes(data[:at] + np.full(len(positions), 2**32 - 1, "<u4").tobytes() + data[at + positions.nbytes :])
    with_hash(known, file)
    with Store.open(known, KnownEncoder()) as store, pytest.raises(StoreDamagedError, match="out of range"):
        store.search("text of lock", 5, "lexical")
    [problem] = verify_store(known, KnownEncoder()).problems
    assert (problem.part, problem.message) == (Part.POSTINGS, "the file has numbers that are out of range")


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"a": ' * 100_000,
        b'{"chunks": {"dtype": "I64", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}}',
        b'{"chunks": {"dtype": [], "shape": 5, "data_offsets": {}}}',
        b"5",
    ],
)
def test_header_of_safetensors_is_checked(known: Path, header: bytes) -> None:
    file = only(known, "derived/postings-*.safetensors")
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(100))
    with_hash(known, file)
    with (
        Store.open(known, KnownEncoder()) as store,
        pytest.raises(StoreDamagedError, match="does not contain postings"),
    ):
        store.search("text of lock", 5, "lexical")
    assert verify_store(known, KnownEncoder()).problems


def test_two_damaged_files_raise_one_error(fitted: Path) -> None:
    with closing(sqlite3.connect(fitted / "store.db")) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'chunks'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    file = only(fitted, "derived/postings-*.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    original = (fitted / "store.db").read_bytes()
    start = (page - 1) * size
    for at in [*range(start, start + 12), *range(start + 12, len(original), 16_411)]:
        (fitted / "store.db").write_bytes(original[:at] + b"\0" + original[at + 1 :])
        for name in ("store.db-wal", "store.db-shm"):
            (fitted / name).unlink(missing_ok=True)
        assert refusals(fitted, None)


@pytest.mark.parametrize("kind", ["folder", "server"])
def test_model_that_the_user_did_not_name_is_not_used(
    fitted: Path, kind: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = str(shutil.copytree(tiny_model, tmp_path / "model")) if kind == "folder" else "http://localhost:9/v1#m"
    config = only(fitted, "embedders/*/config.json")
    about = json.loads(config.read_text())
    former = about["config"]["model"]
    about["config"]["model"] = model
    before = hashlib.sha256(config.read_bytes()).hexdigest()
    config.write_text(json.dumps(about))
    after = hashlib.sha256(config.read_bytes()).hexdigest()
    edit(fitted, ("UPDATE meta SET value = replace(replace(value, ?, ?), ?, ?)", (before, after, former, model)))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with Store.open(fitted) as store:
        with pytest.raises(ModelError, match=r"which you have not used before: .* set RAGEMBED_MODEL="):
            store.search("text", 5, "dense")
        assert store.search("text", 5, "lexical")
    assert "which you have not used before" in verify_store(fitted).problems[0].message
    if kind == "folder":
        monkeypatch.setenv("RAGEMBED_MODEL", model)
        with Store.open(fitted) as store:
            assert store.search("text", 5, "dense")
        monkeypatch.delenv("RAGEMBED_MODEL")
        with Store.open(fitted) as store:
            assert store.search("text", 5, "dense")
        assert (tmp_path / "config" / "ragembed" / "models").stat().st_mode & 0o777 == 0o600
