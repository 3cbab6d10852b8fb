"""Hostile ``index.pkl`` files are errors or read as data; nothing in them is executed."""

from __future__ import annotations

import copyreg
import os
import pickle  # noqa: TID251  hostile files are made with it, and it shows that they would do harm
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from ragembed.errors import StoreDamagedError, StoreError
from ragembed.langchain import restricted_pickle
from ragembed.langchain.community import read_docstore
from ragembed.langchain.restricted_pickle import StandIn

from .community_folders import docstore, name, opcodes, text, whole, with_metadata

EXTENSION = 240
DOCUMENT = name("langchain_core.documents.base.Document")
EMPTY_DOCUMENT = DOCUMENT + b")\x81"
EXEC = name("builtins.exec")


def call(function: bytes, *arguments: bytes) -> bytes:
    """Return the opcodes of a call, which pickle writes for ``__reduce__``."""
    return function + b"(" + b"".join(arguments) + b"tR"


def opening(marker: Path) -> str:
    return f"__import__('pathlib').Path({str(marker)!r}).touch()"


class Trap:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.made_by = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.made_by


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.fixture
def _extension(case: str) -> Iterator[None]:
    """An extension code that pickle has already resolved does not call ``find_class`` again."""
    if not case.startswith("EXT"):
        yield
        return
    copyreg.add_extension("builtins", "exec", EXTENSION)
    pickle.loads(whole(b"\x82" + struct.pack("<B", EXTENSION)))
    yield
    copyreg.remove_extension("builtins", "exec", EXTENSION)


def write(folder: Path, data: bytes) -> Path:
    file = folder / "index.pkl"
    file.write_bytes(data)
    return file


HARMFUL: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "exec": (lambda marker: pickle.dumps(Trap(exec, opening(marker))), "'builtins.exec'"),
    "eval": (lambda marker: pickle.dumps(Trap(eval, opening(marker))), "'builtins.eval'"),
    "os.system": (lambda marker: pickle.dumps(Trap(os.system, f"touch '{marker}'")), f"'{os.name}.system'"),
    "protocol 0": (lambda marker: pickle.dumps(Trap(exec, opening(marker)), 0), "'__builtin__.exec'|the opcode PUT"),
    "protocol 2": (lambda marker: pickle.dumps(Trap(exec, opening(marker)), 2), "'__builtin__.exec'"),
    "a method": (lambda marker: pickle.dumps(Trap(marker.touch)), "'builtins.getattr'"),
    "in metadata": (lambda marker: with_metadata(call(EXEC, text(opening(marker)))), "'builtins.exec'"),
    "thrown away": (lambda marker: whole(call(EXEC, text(opening(marker))), b"0N"), "the opcode POP"),
    "a module that an allowed one imports": (
        lambda marker: whole(call(text("uuid") + text("os.mkdir") + b"\x93", text(marker))),
        "'uuid.os.mkdir'",
    ),
    "an attribute of an allowed class": (
        lambda marker: whole(
            text("langchain_core.documents.base") + text("Document.__init__.__globals__.get") + b"\x93",
            call(EXEC, text(opening(marker))),
        ),
        "'langchain_core.documents.base.Document.__init__.__globals__.get'",
    ),
    "INST": (lambda marker: b"(" + text(opening(marker)) + b"ibuiltins\nexec\n.", "the opcode INST"),
    "OBJ": (lambda marker: whole(b"(", EXEC, text(opening(marker)), b"o"), "the opcode OBJ"),
    "EXT1": (lambda marker: whole(call(b"\x82" + struct.pack("<B", EXTENSION), text(opening(marker)))), "EXT1"),
    "EXT2": (lambda marker: whole(call(b"\x83" + struct.pack("<H", EXTENSION), text(opening(marker)))), "EXT2"),
    "EXT4": (lambda marker: whole(call(b"\x84" + struct.pack("<I", EXTENSION), text(opening(marker)))), "EXT4"),
}


@pytest.mark.usefixtures("_extension")
@pytest.mark.parametrize("case", HARMFUL)
def test_calls_are_errors_and_not_executed(tmp_path: Path, marker: Path, case: str) -> None:
    make, message = HARMFUL[case]
    file = write(tmp_path, make(marker))
    with pytest.raises(StoreError, match=message) as raised:
        read_docstore(file)
    assert str(file) in str(raised.value)
    assert "nothing in the file was executed" in str(raised.value)
    assert not marker.exists()


@pytest.mark.usefixtures("_extension")
@pytest.mark.parametrize("case", [case for case in HARMFUL if case != "in metadata"])
def test_pickle_itself_executes_them(marker: Path, case: str) -> None:
    pickle.loads(HARMFUL[case][0](marker))
    assert marker.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (whole(b"NQ"), "the opcode BINPERSID at byte 3"),
        (b"Pid\n.", "the opcode PERSID at byte 0"),
        (whole(EMPTY_DOCUMENT, b")}\x92"), "the opcode NEWOBJ_EX"),
        (whole(b"\x97"), "the opcode NEXT_BUFFER"),
        (whole(name("copyreg._reconstructor")), "'copyreg._reconstructor'"),
        (whole(name("builtins.getattr")), "'builtins.getattr'"),
        (whole(name("builtins.object")), "'builtins.object'"),
        (whole(name("x\n" * 1000 + "." + "y" * 10**6)), "uses 'x\\nx\\n"),
    ],
)
def test_other_names_and_opcodes_are_errors(tmp_path: Path, data: bytes, message: str) -> None:
    file = write(tmp_path, data)
    with pytest.raises(StoreError) as raised:
        read_docstore(file)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 600


def test_stand_ins_are_inert(tmp_path: Path) -> None:
    state = opcodes({"__class__": 1, "__reduce__": 2, "__init__": 3})
    file = write(tmp_path, whole(call(DOCUMENT, text("a"), b"K\x01"), state, b"b", text("key"), b"Ns"))
    made = restricted_pickle.load(file, {"langchain_core.documents.base.Document"})
    assert isinstance(made, StandIn)
    assert (made.arguments, made.items) == (("a", 1), {"key": None})
    assert made.state == {"__class__": 1, "__reduce__": 2, "__init__": 3}
    assert not hasattr(made, "__dict__")
    assert not callable(made)


@pytest.mark.parametrize(
    "data",
    [
        whole(DOCUMENT, b"}b"),  # the state of a class
        whole(DOCUMENT, text("key"), b"Ns"),  # an item of a class
        whole(call(EMPTY_DOCUMENT)),  # a call of an object
        whole(call(text("text"))),
        whole(text("text"), b"}b"),
        whole(b"}}b"),
        whole(EMPTY_DOCUMENT, b"Na"),
        whole(EMPTY_DOCUMENT, b"(Ne"),
        whole(EMPTY_DOCUMENT, b"(N\x90"),
        whole(b"}]Ns"),  # a list as a key
        whole(b"}(Nu"),
        whole(b"NN\x93"),
        whole(b"\x85"),
        whole(b"t"),
        whole(b"h\x07"),
        whole(b"\x94"),
        whole(),
        b"",
        b"\x80",
        b"\x80\x06N.",
        whole(b"\xff"),
        whole(b"N") + b"N",
        whole(b"N") + whole(EXEC),
        b"<!DOCTYPE html>",
        b"version https://git-lfs.github.com/spec/v1\n",
    ],
)
def test_invalid_pickles_are_errors(tmp_path: Path, data: bytes) -> None:
    file = write(tmp_path, data)
    with pytest.raises(StoreDamagedError, match=r"expected an index\.pkl of langchain-community") as raised:
        read_docstore(file)
    assert str(file) in str(raised.value)


LAUGHS = b"N" + 40 * b"q\xc8h\xc8\x86"
"""Nested pairs, each with the same pair twice."""
ITSELF = b"]q\xc8h\xc8ah\xc8a"
REPEATED = b"](" + text("x" * 10**6) + b"q\xc8" + 200 * b"h\xc8" + b"e"
SCALAR = name("numpy._core.multiarray.scalar")
EIGHT = b"C\x08" + bytes(8)


def dtype(code: str) -> bytes:
    return call(name("numpy.dtype"), text(code)) + b"N" + text("<") + b"\x86b"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (LAUGHS, "has too many values"),
        (REPEATED, "has too many values"),
        (ITSELF, "is nested more than 100 deep"),
        (100_000 * b"]" + 99_999 * b"a", "is nested more than 100 deep"),
        (10_000 * (b"}" + text("k")) + b"N" + 10_000 * b"s", "is nested more than 100 deep"),
        (call(name("datetime.date"), text("abcd")), "is not a valid datetime.date: made of a str"),
        (call(name("datetime.date"), EIGHT), "is not a valid datetime.date"),
        (call(name("datetime.datetime"), b"C\x0a" + 10 * b"\xff"), "is not a valid datetime.datetime"),
        (call(name("datetime.time"), EIGHT, b"N"), "is not a valid datetime.time"),
        (call(name("datetime.timezone"), call(name("datetime.date"))), "datetime.date is not a duration"),
        (call(name("datetime.timedelta"), *3 * (b"\x8a\x20" + 32 * b"\x7f",)), "is not a valid datetime.timedelta"),
        (call(name("decimal.Decimal"), text("9" * 1000)), "is inf"),
        (call(name("decimal.Decimal"), text("x" * 10**6)), "could not convert string to float: 'xxxx"),
        (call(name("uuid.UUID"), text("x")), "is not a valid uuid.UUID"),
        (call(name("pathlib.PosixPath"), b"N"), "is not a valid pathlib.PosixPath"),
        (call(SCALAR, dtype("O"), EIGHT), "its type is 'O'"),
        (call(SCALAR, dtype("f8,f8"), EIGHT), "its type is 'f8,f8'"),
        (call(SCALAR, dtype("U999999999"), EIGHT), "is not a valid numpy._core.multiarray.scalar"),
        (call(SCALAR, dtype("i4"), EIGHT), "too many values to unpack"),
        (call(SCALAR, EIGHT, EIGHT), "is not a valid numpy._core.multiarray.scalar"),
        (dtype("f8"), "is of type numpy.dtype"),
        (name("collections.OrderedDict"), "is of type type"),
        (call(name("builtins.list"), EIGHT), "is of type builtins.list"),
        (call(name("builtins.set")), "is of type builtins.set"),
        (EMPTY_DOCUMENT, "is of type langchain_core.documents.base.Document"),
    ],
)
def test_invalid_and_huge_values_are_errors(tmp_path: Path, value: bytes, message: str) -> None:
    file = write(tmp_path, with_metadata(value))
    expected = f"the metadata 'm' of document 'x' .*{message}|contain each other repeatedly"
    with pytest.raises(StoreError, match=expected) as raised:
        read_docstore(file)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x8d" + struct.pack("<Q", 10 * 1024**3),
        b"\x8e" + struct.pack("<Q", 2**64 - 1),
        b"X" + struct.pack("<I", 2**32 - 1),
        b"B" + struct.pack("<I", 2**31),
        b"\x8b" + struct.pack("<i", 2**31 - 1),
        b"\x8b" + struct.pack("<i", -1),
        b"\x95" + struct.pack("<Q", 10 * 1024**3) + b"(",
        b"Nr" + struct.pack("<I", 2**32 - 1),
    ],
)
def test_wrong_lengths_take_no_memory(tmp_path: Path, bomb: bytes) -> None:
    file = write(tmp_path, whole(bomb))
    tracemalloc.start()
    try:
        with pytest.raises(StoreDamagedError, match="is truncated or damaged"):
            read_docstore(file)
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024**2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("deep", [1_000_000 * b"\x85", 100 * (10_000 * b"\x85" + b"q\x01h\x01")])
def test_deep_tuples_are_an_error(tmp_path: Path, deep: bytes) -> None:
    with pytest.raises(StoreError, match="tuples that are nested more than 100 deep"):
        read_docstore(write(tmp_path, with_metadata(b"}N" + deep + b"Ns")))


def test_too_large_file_is_an_error_before_reading(tmp_path: Path) -> None:
    file = tmp_path / "index.pkl"
    with file.open("wb") as stream:
        stream.truncate(2**32 + 1)  # a sparse file
    with pytest.raises(StoreError, match="has 4,294,967,297 bytes: expected at most 4,294,967,296"):
        read_docstore(file)


GOOD = docstore(
    {"a": Document("one", metadata={"n": 1, "l": [0.5, None]}), "b": Document("two" * 30, metadata={"s": {1}})}
)


def test_truncated_file_is_an_error(tmp_path: Path) -> None:
    assert len(read_docstore(write(tmp_path, GOOD))[0]) == 2
    for size in range(len(GOOD)):
        with pytest.raises(StoreDamagedError, match="is truncated or damaged"):
            read_docstore(write(tmp_path, GOOD[:size]))


@given(st.data())
def test_changed_bytes_are_an_error_or_other_data(tmp_path: Path, data: Any) -> None:
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(GOOD) - 1))] = data.draw(st.integers(0, 255))
    try:
        documents, _ = read_docstore(write(tmp_path, bytes(changed)))
    except StoreError:
        return
    assert all(type(document.page_content) is str for document in documents.values())


def test_key_with_slow_hash_is_an_error(tmp_path: Path) -> None:
    doubled = b"N" + b"".join(b"q%c0h%c\x86" % (i, i) for i in range(40))  # each is a tuple with the previous one twice
    with pytest.raises(StoreError, match="contain each other repeatedly"):
        read_docstore(write(tmp_path, b"\x80\x04}" + doubled.replace(b"0h", b"h") + b"Ns."))
