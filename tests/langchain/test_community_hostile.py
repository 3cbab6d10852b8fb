"""Files that are made to do harm: each is refused, and nothing in it is executed."""

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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragembed.errors import StoreDamagedError, StoreError
from ragembed.langchain.community.documents import PickledDocument
from ragembed.langchain.community.opcodes import CODES, Global, Made
from ragembed.langchain.community.pickling import dumps, write_docstore
from ragembed.langchain.community.unpickling import read_docstore

EXTENSION = 240
DOCSTORE = Global("langchain_community.docstore.in_memory", "InMemoryDocstore")
DOCUMENT = Global("langchain_core.documents.base", "Document")


def op(name: str) -> bytes:
    return bytes([CODES[name]])


def text(value: str | Path) -> bytes:
    data = str(value).encode()
    return op("BINUNICODE") + struct.pack("<I", len(data)) + data


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + op("STACK_GLOBAL")


def whole(*parts: bytes) -> bytes:
    return b"\x80\x04" + b"".join(parts) + op("STOP")


def call(function: bytes, argument: str | Path) -> bytes:
    return function + text(argument) + op("TUPLE1") + op("REDUCE")


def document(value: bytes) -> bytes:
    """A store of one document, whose metadata ``m`` is what the opcodes ``value`` make."""
    fields = {"page_content": "text", "metadata": {"m": "VALUE"}}
    data = dumps((Made(DOCSTORE, state={"_dict": {"x": Made(DOCUMENT, state={"__dict__": fields})}}), {0: "x"}))
    before, after = data.split(b"\x8c\x05VALUE" + op("MEMOIZE"))
    return before + value + after


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
def _extension(name: str) -> Iterator[None]:
    if not name.startswith("EXT"):
        yield
        return
    copyreg.add_extension("builtins", "exec", EXTENSION)
    yield
    copyreg.remove_extension("builtins", "exec", EXTENSION)


def write(folder: Path, data: bytes) -> Path:
    file = folder / "index.pkl"
    file.write_bytes(data)
    return file


EXEC = named("builtins", "exec")
HARMFUL: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "exec": (lambda marker: pickle.dumps(Trap(exec, opening(marker))), "'builtins.exec'"),
    "eval": (lambda marker: pickle.dumps(Trap(eval, opening(marker))), "'builtins.eval'"),
    "os": (lambda marker: pickle.dumps(Trap(os.mkdir, str(marker))), f"'{os.name}.mkdir'"),
    "protocol 0": (lambda marker: pickle.dumps(Trap(exec, opening(marker)), 0), "'__builtin__.exec'"),
    "protocol 2": (lambda marker: pickle.dumps(Trap(exec, opening(marker)), 2), "'__builtin__.exec'"),
    "a method": (lambda marker: pickle.dumps(Trap(marker.touch)), "'builtins.getattr'"),
    "in metadata": (
        lambda marker: document(call(EXEC, opening(marker))),
        "'builtins.exec'",
    ),
    "thrown away": (lambda marker: whole(call(EXEC, opening(marker)), op("POP"), op("NONE")), "'builtins.exec'"),
    "a module that an allowed one imports": (
        lambda marker: whole(call(named("uuid", "os.mkdir"), marker)),
        "'uuid.os.mkdir'",
    ),
    "what hangs on an allowed class": (
        lambda marker: whole(
            named("langchain_core.documents.base", "Document.__init__.__globals__.get"),
            op("POP"),
            call(EXEC, opening(marker)),
        ),
        "'langchain_core.documents.base.Document.__init__.__globals__.get'",
    ),
    "INST": (lambda marker: op("MARK") + text(opening(marker)) + op("INST") + b"builtins\nexec\n.", "INST"),
    "OBJ": (lambda marker: whole(op("MARK"), EXEC, text(opening(marker)), op("OBJ")), "'builtins.exec'"),
    "EXT1": (lambda marker: whole(call(op("EXT1") + struct.pack("<B", EXTENSION), opening(marker))), "EXT1"),
    "EXT2": (lambda marker: whole(call(op("EXT2") + struct.pack("<H", EXTENSION), opening(marker))), "EXT2"),
    "EXT4": (lambda marker: whole(call(op("EXT4") + struct.pack("<I", EXTENSION), opening(marker))), "EXT4"),
}


@pytest.mark.guarantee(32, 40)
@pytest.mark.usefixtures("_extension")
@pytest.mark.parametrize("name", HARMFUL)
def test_what_would_be_executed_is_refused(tmp_path: Path, marker: Path, name: str) -> None:
    make, asked = HARMFUL[name]
    file = write(tmp_path, make(marker))
    with pytest.raises(StoreError, match="nothing of the file was executed") as raised:
        read_docstore(file)
    assert str(file) in str(raised.value)
    assert asked in str(raised.value)
    assert not marker.exists()


@pytest.mark.guarantee(32)
@pytest.mark.usefixtures("_extension")
@pytest.mark.parametrize("name", [name for name in HARMFUL if name != "in metadata"])
def test_pickle_itself_executes_it(marker: Path, name: str) -> None:
    pickle.loads(HARMFUL[name][0](marker))
    assert marker.exists()


REDUCED = op("EMPTY_TUPLE") + op("REDUCE")
EMPTY_DOCUMENT = named(DOCUMENT.module, DOCUMENT.name) + op("EMPTY_TUPLE") + op("NEWOBJ")


@pytest.mark.guarantee(32, 40)
@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (whole(op("NONE"), op("BINPERSID")), "the opcode BINPERSID at byte 3"),
        (b"Pid\n.", "is no pickle: it begins with b'Pid"),
        (whole(EMPTY_DOCUMENT, op("NEWOBJ_EX")), "the opcode NEWOBJ_EX"),
        (whole(op("NEXT_BUFFER")), "the opcode NEXT_BUFFER"),
        (whole(op("BYTEARRAY8") + struct.pack("<Q", 10**10)), "the opcode BYTEARRAY8"),
        (whole(b"\xff"), "the opcode 0xff at byte 2"),
        (b"\x80\x06N.", "is of version 6 of pickle"),
        (whole(named("copyreg", "_reconstructor")), "'copyreg._reconstructor'"),
        (whole(named("builtins", "getattr")), "'builtins.getattr'"),
        (whole(named("langchain_core.documents", "base.Document")), "'langchain_core.documents.base.Document'"),
        (whole(named("x\n" * 1000, "y" * 10**6)), "asks for 'x\\nx\\n"),
    ],
)
def test_what_data_do_not_need_is_refused(tmp_path: Path, data: bytes, asked: str) -> None:
    file = write(tmp_path, data)
    with pytest.raises(StoreError) as raised:
        read_docstore(file)
    assert asked in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "data",
    [
        whole(EMPTY_DOCUMENT, text("x"), op("REDUCE")),
        whole(EMPTY_DOCUMENT, op("EMPTY_TUPLE"), op("REDUCE")),
        whole(named(DOCUMENT.module, DOCUMENT.name), op("NONE"), op("EMPTY_DICT"), op("TUPLE2"), op("BUILD")),
        whole(EMPTY_DOCUMENT, op("EMPTY_DICT"), op("BUILD"), op("EMPTY_DICT"), op("BUILD")),
        whole(op("EMPTY_DICT"), op("EMPTY_DICT"), op("BUILD")),
        whole(EMPTY_DOCUMENT, op("NONE"), op("APPEND")),
        whole(op("EMPTY_DICT"), op("EMPTY_LIST"), op("NONE"), op("SETITEM")),
        whole(op("EMPTY_DICT"), op("MARK"), op("NONE"), op("SETITEMS")),
        whole(op("NONE"), op("NONE"), op("STACK_GLOBAL")),
        whole(op("GLOBAL"), b"builtins"),
        whole(op("TUPLE1")),
        whole(op("NONE"), op("TUPLE2")),
        whole(op("TUPLE")),
        whole(op("APPENDS")),
        whole(op("BINGET"), b"\x07"),
        whole(op("MEMOIZE")),
        whole(op("NONE"), op("NONE")),
        whole(op("MARK"), op("NONE")),
        whole(),
        b"",
        b"\x80",
        whole(op("NONE")) + b"N",
        whole(op("NONE")) + whole(EXEC),
        b"<!DOCTYPE html>",
        b"version https://git-lfs.github.com/spec/v1\n",
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, data: bytes) -> None:
    file = write(tmp_path, data)
    with pytest.raises(StoreDamagedError, match=r"expected an index\.pkl that langchain-community wrote") as raised:
        read_docstore(file)
    assert str(file) in str(raised.value)


def laughs(levels: int) -> bytes:
    """A pair of twice the same pair, that of twice the same pair, and so on."""
    return op("NONE") + levels * (op("BINPUT") + b"\xc8" + op("BINGET") + b"\xc8" + op("TUPLE2"))


ITSELF = op("EMPTY_LIST") + op("BINPUT") + b"\xc8" + 2 * (op("BINGET") + b"\xc8" + op("APPEND"))
SCALAR = named("numpy._core.multiarray", "scalar")
EIGHT = op("SHORT_BINBYTES") + b"\x08" + bytes(8)


def reduced(module: str, name: str, *arguments: bytes) -> bytes:
    return named(module, name) + op("MARK") + b"".join(arguments) + op("TUPLE") + op("REDUCE")


def dtype(code: str) -> bytes:
    return reduced("numpy", "dtype", text(code)) + op("NONE") + text("<") + op("TUPLE2") + op("BUILD")


def numpy(code: str, data: bytes) -> bytes:
    return SCALAR + dtype(code) + data + op("TUPLE2") + op("REDUCE")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (laughs(40), "comes to too many values"),
        (laughs(200), "comes to too many values|is nested more than 100 deep"),
        (ITSELF, "comes to too many values|is nested more than 100 deep"),
        (100_000 * op("EMPTY_LIST") + 99_999 * op("APPEND"), "is nested more than 100 deep"),
        (op("NONE") + 1_000_000 * op("TUPLE1"), "is nested more than 100 deep"),
        (10_000 * (op("EMPTY_DICT") + text("k")) + op("NONE") + 10_000 * op("SETITEM"), "is nested more than 100 deep"),
        (reduced("datetime", "date", text("abcd")), "is no datetime.date that can be read: made of a str"),
        (reduced("datetime", "date", EIGHT), "is no datetime.date that can be read: made of 8 bytes"),
        (reduced("datetime", "datetime", op("SHORT_BINBYTES") + b"\x0a" + 10 * b"\x0d"), "month must be in 1..12"),
        (reduced("datetime", "time", EIGHT, op("NONE")), "is no datetime.time that can be read"),
        (reduced("datetime", "time", op("NONE"), op("NONE"), op("NONE")), "is no datetime.time that can be read"),
        (reduced("datetime", "timezone", reduced("datetime", "date")), "datetime.date is no duration"),
        (reduced("datetime", "timedelta", *3 * (op("LONG1") + b"\x20" + 32 * b"\x7f",)), "is no datetime.timedelta"),
        (reduced("decimal", "Decimal", text("9" * 1000)), "is inf"),
        (reduced("decimal", "Decimal", text("x" * 10**6)), "could not convert string to float: 'xxxx"),
        (reduced("uuid", "UUID", text("x")), "is no uuid.UUID that can be read"),
        (reduced("pathlib", "PosixPath", op("NONE")), "is no pathlib.PosixPath that can be read"),
        (numpy("O", EIGHT), "its type is 'O'"),
        (numpy("f8,f8", EIGHT), "its type is 'f8,f8'"),
        (numpy("U999999999", EIGHT), "is no numpy._core.multiarray.scalar that can be read"),
        (numpy("i4", EIGHT), "too many values to unpack"),
        (numpy("f8", text("12345678")), "is no numpy._core.multiarray.scalar that can be read"),
        (SCALAR + EIGHT + EIGHT + op("TUPLE2") + op("REDUCE"), "is no numpy._core.multiarray.scalar that can be read"),
        (dtype("f8"), "is of type numpy.dtype"),
        (named("collections", "OrderedDict"), "is of type Global"),
        (reduced("builtins", "list", EIGHT), "is of type builtins.list"),
        (reduced("builtins", "set"), "is of type builtins.set"),
        (document(op("NONE"))[2:-1], "is of type langchain_community.docstore.in_memory.InMemoryDocstore"),
    ],
)
def test_values_that_fill_the_memory_or_are_false_are_named(tmp_path: Path, value: bytes, message: str) -> None:
    file = write(tmp_path, document(value))
    with pytest.raises(StoreError, match=f"the metadata 'm' of document 'x' .*({message})") as raised:
        read_docstore(file)
    assert len(str(raised.value)) < 600


LENGTHS = [
    op("BINUNICODE8") + struct.pack("<Q", 10 * 1024**3),
    op("BINBYTES8") + struct.pack("<Q", 2**64 - 1),
    op("BINUNICODE") + struct.pack("<I", 2**32 - 1),
    op("BINBYTES") + struct.pack("<I", 2**31),
    op("LONG4") + struct.pack("<i", 2**31 - 1),
    op("LONG4") + struct.pack("<i", -1),
    op("FRAME") + struct.pack("<Q", 10 * 1024**3),
    op("NONE") + op("LONG_BINPUT") + struct.pack("<I", 2**32 - 1) + op("MARK"),
]


@pytest.mark.parametrize("bomb", LENGTHS)
def test_lengths_that_are_not_there_take_no_memory(tmp_path: Path, bomb: bytes) -> None:
    file = write(tmp_path, whole(bomb))
    tracemalloc.start()
    try:
        with pytest.raises(StoreDamagedError, match="is broken off or damaged at byte"):
            read_docstore(file)
        assert tracemalloc.get_traced_memory()[1] < 1024**2
    finally:
        tracemalloc.stop()


def test_a_key_of_deep_tuples_does_not_end_the_process(tmp_path: Path) -> None:
    deep = op("EMPTY_DICT") + op("NONE") + 1_000_000 * op("TUPLE1") + op("NONE") + op("SETITEM")
    with pytest.raises(StoreDamagedError, match="is broken off or damaged"):
        read_docstore(write(tmp_path, document(deep)))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("good") / "index.pkl"
    write_docstore(file, [PickledDocument("a", "one", {"n": 1, "l": [0.5, None]}), PickledDocument("b", "two" * 99)])
    return file.read_bytes()


def test_a_file_that_is_broken_off_anywhere_is_told(tmp_path: Path, good: bytes) -> None:
    for size in range(len(good)):
        with pytest.raises(StoreDamagedError, match="is broken off or damaged at byte"):
            read_docstore(write(tmp_path, good[:size]))


@pytest.mark.guarantee(32)
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_are_told_or_change_the_data_alone(tmp_path: Path, good: bytes, data: Any) -> None:
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        documents, _ = read_docstore(write(tmp_path, bytes(changed)))
    except StoreError:
        return
    assert all(type(found.text) is str for found in documents.values())
