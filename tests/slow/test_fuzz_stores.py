"""Altered stores, whose digests and hashes match: each is opened, searched, verified and copied, or refused.

A database gets other values, and a file other bytes or another header. Only errors of ragembed may be raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ragembed import EmbedderConfig, Store
from ragembed.cli import main
from ragembed.errors import RagembedError
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import index_files
from ragembed.indexes.indexing.refit import refit_store
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.storage import hubness, posting_files, schema
from ragembed.indexes.storage.copying import copy_store
from ragembed.indexes.verification import verify_store
from tests.conftest import WORDS, record
from tests.indexes.tampering import edit
from tests.slow.helpers import scaled

pytestmark = pytest.mark.slow
FILES, STORES = 20, 400
_NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 2, 7, 255, 2**16, 2**31, 2**32 - 1, 2**40, 2**63 - 1)
_VALUES: tuple[Any, ...] = (
    *_NUMBERS,
    *(None, "", "x", "12", "[]", "{}", "null", "true", "[1]", '["a", 2]', '"x"', "[" * 5000, '{"a": ' * 5000, "1e999"),
    *(
        '{"a": {"b": [1, null, "x"]}}',
        "../../etc/passwd",
        "a\0b",
        "\x1b[31m",
        b"",
        b"\xff\xfe",
        0.5,
        -1e300,
        "-1",
        "NaN",
    ),
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, tiny_config: EmbedderConfig) -> Path:
    """A store of files with postings, hubness, queries of a fit and unused vectors."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "docs").mkdir()
    draw = np.random.default_rng(0)
    for number in range(FILES):
        texts = [" ".join(draw.choice(WORDS, 30)) for _ in range(6)]
        body = "\n\n".join(f"## Part {at}\n\n{text}" for at, text in enumerate(texts))
        (folder / "docs" / f"file{number}.md").write_text(f"# File {number}\n\nThe same line everywhere.\n\n{body}\n")
    (folder / "docs" / "broken.pdf").write_bytes(b"%PDF-")
    path = folder / ".ragembed"
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patched.setattr(fitting, "MIN_FIT", 2)
        patched.setattr(posting_files, "LEAST_CHUNKS", 1)
        patched.setattr(hubness, "PSEUDO_QUERIES", 40)
        index_files(IndexingRequest(path, (folder / "docs",), embedder=tiny_config))
        refit_store(path)
        with Store.open(path) as store:
            store.delete(paths=["docs/file3.md"])
            store.add([record("own", "a text without a file", metadata={"i": 5})])
    return path


def refusal(act: Callable[[Store], object], store: Store) -> list[str]:
    try:
        act(store)
    except RagembedError as error:
        return [type(error).__name__]
    return []


def use(path: Path) -> list[str]:
    """Do with a store what a reader does; return the names of the errors."""
    found = []
    acts: Sequence[Callable[[Store], object]] = (
        lambda store: store.search("segment vector of the store", 10, "dense"),
        lambda store: store.search('"wing flow" lock', 10, "lexical"),
        lambda store: store.search("segment vector", 5, "hybrid", where="path GLOB '*file1*' OR i > 3"),
        lambda store: store.search_mmr("air", 5),
        lambda store: store.explain("segment vector", 3),
        lambda store: store.why_not("segment vector", "docs/file5.md"),
        lambda store: store.context("segment vector"),
        lambda store: list(store.chunks()),
        lambda store: store.status(),
        lambda store: store.vectors(store.ids()[:9]),
        lambda store: store.sources(),
    )
    try:
        with Store.open(path) as store:
            for act in acts:
                found += refusal(act, store)
    except RagembedError as error:
        found.append(type(error).__name__)
    found += [problem.part.name for problem in verify_store(path).problems]
    for command in (["status"], ["query", "segment vector"], ["doctor", "--integrity"]):
        result = CliRunner().invoke(main, [*command, "--store", str(path)])
        if not isinstance(result.exception, (SystemExit, type(None))):
            raise result.exception
    target = path.with_name("copy")
    shutil.rmtree(target, ignore_errors=True)
    try:
        copy_store(path, target)
    except RagembedError as error:
        found.append(type(error).__name__)
    return found


def alter_cell(path: Path, draw: np.random.Generator) -> str:
    """Give a value of the database another value."""
    with closing(sqlite3.connect(path / "store.db")) as connection:
        tables = [
            table
            for table in (*schema.TABLES, "vectors", "tombstones")
            if connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        ]
        table = tables[draw.integers(len(tables))]
        columns = connection.execute(f"PRAGMA table_info ({table})").fetchall()
        name = columns[draw.integers(len(columns))][1]
        key = next(name for _, name, *_, place in columns if place == 1)
        keys = [row[0] for row in connection.execute(f"SELECT {key} FROM {table}")]
        where = keys[draw.integers(len(keys))]
    value = _VALUES[draw.integers(len(_VALUES))]
    many = draw.integers(4) == 0
    statement = f"UPDATE OR IGNORE {table} SET {name} = ?" + ("" if many else f" WHERE {key} = ?")
    with contextlib.suppress(sqlite3.IntegrityError):  # SQLite accepts only integers as an integer key.
        edit(path, (statement, (value,) if many else (value, where)))
    return f"{table}.{name} of {'all' if many else repr(where)} = {str(value)[:60]!r}"


def altered_json(value: Any, draw: np.random.Generator) -> Any:
    """Return a JSON value with another value somewhere inside."""
    if isinstance(value, (dict, list)) and len(value) and draw.integers(5):
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[draw.integers(len(keys))]
        if not draw.integers(6):
            copy = dict(value) if isinstance(value, dict) else list(value)
            del copy[key]
            return copy
        inner = altered_json(value[key], draw)
        return {**value, key: inner} if isinstance(value, dict) else [*value[:key], inner, *value[key + 1 :]]
    choices: tuple[Any, ...] = (
        *_NUMBERS,
        None,
        True,
        "",
        "x",
        "flat",
        [],
        {},
        [1],
        {"a": 1},
        0.5,
        1e308,
        "../x",
        "0" * 32,
    )
    return choices[draw.integers(len(choices))]


def alter_meta(path: Path, draw: np.random.Generator) -> str:
    """Change a value inside the JSON of the table ``meta``."""
    with closing(sqlite3.connect(path / "store.db")) as connection:
        rows = connection.execute("SELECT key, value FROM meta ORDER BY key").fetchall()
    key, text = rows[draw.integers(len(rows))]
    value = json.dumps(altered_json(json.loads(text), draw))
    edit(path, ("UPDATE meta SET value = ? WHERE key = ?", (value, key)))
    return f"meta {key} = {value[:300]}"


def altered_bytes(data: bytes, draw: np.random.Generator) -> bytes:
    """Return other bytes, or another value in the header of a safetensors file."""
    header_size = int.from_bytes(data[:8], "little")
    if header_size < len(data) and draw.integers(2):
        header = json.dumps(altered_json(json.loads(data[8 : 8 + header_size]), draw)).encode()
        return len(header).to_bytes(8, "little") + header + data[8 + header_size :]
    found = bytearray(data)
    at = int(draw.choice([draw.integers(0, min(64, len(data))), draw.integers(0, len(data))]))
    change = draw.integers(0, 5)
    if change <= 1:
        found[at : at + 1] = bytes([draw.integers(256)])
    elif change == 2:
        found[at : at + 8] = int(draw.choice(_NUMBERS)).to_bytes(8, "little", signed=True)
    elif change == 3:
        del found[at:]
    else:
        found[at:at] = bytes(int(draw.integers(1, 40)))
    return bytes(found)


def alter_file(path: Path, draw: np.random.Generator) -> str:
    """Change the bytes of a file, and its hash in the database."""
    files = sorted(file for file in path.glob("*/*/*") if file.name != "config.json" or draw.integers(2))
    file = files[draw.integers(len(files))]
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    if file.suffix == ".json":
        file.write_text(json.dumps(altered_json(json.loads(file.read_text()), draw)))
    else:
        file.write_bytes(altered_bytes(file.read_bytes(), draw))
    after = hashlib.sha256(file.read_bytes()).hexdigest()
    edit(
        path,
        ("UPDATE meta SET value = replace(value, ?, ?)", (before, after)),
        ("UPDATE segments SET raw_sha256 = replace(raw_sha256, ?, ?)", (before, after)),
        ("UPDATE segments SET index_sha256 = replace(index_sha256, ?, ?)", (before, after)),
        ("UPDATE derived SET sha256 = replace(sha256, ?, ?)", (before, after)),
    )
    if file.name == "state.safetensors":
        config = file.with_name("config.json")
        former = hashlib.sha256(config.read_bytes()).hexdigest()
        config.write_text(config.read_text().replace(before, after))
        now = hashlib.sha256(config.read_bytes()).hexdigest()
        edit(path, ("UPDATE meta SET value = replace(value, ?, ?)", (former, now)))
    return f"{file.relative_to(path)}"


@pytest.mark.parametrize("alter", [alter_cell, alter_meta, alter_file])
@pytest.mark.parametrize("seed", range(4))
def test_altered_stores(
    template: Path, tmp_path: Path, alter: Callable[[Path, np.random.Generator], str], seed: int
) -> None:
    assert use(shutil.copytree(template, tmp_path / "sound")) == []
    path = tmp_path / "store"
    for number in range(scaled(STORES // 4)):
        draw = np.random.default_rng([seed, number])
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(template, path)
        what = alter(path, draw)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                use(path)
        except Exception as error:
            raise AssertionError(f"seed {seed}, number {number}: {what}") from error
