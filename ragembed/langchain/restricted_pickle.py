"""Read pickles of documents without executing anything in them.

A pickle can normally call any function by name. This reader does not allow that:

- Each allowed class is replaced by an inert stand-in that stores its arguments and state. Any other class or function
  is an error before it is used.
- The opcodes are checked before :mod:`pickle` reads them. Only the opcodes that pickle writes for plain data and
  objects are allowed: no extension codes, which can bypass ``find_class``, and no persistent ids. Memo indexes are
  limited by the size of the file, and the nesting of tuples is limited, because hashing a deeply nested tuple crashes
  the process.
- The file can have up to 4 GiB. The memory for its objects grows with the file, up to about a hundred bytes per byte.
  The caller has to limit the depth of lists and dictionaries, and the expansion of repeated references.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

from ragembed.errors import StoreDamagedError, StoreError

_MAX_FILE_BYTES = 2**32
_MAX_TUPLE_DEPTH = 100
_STEPS_PER_BYTE = 10
_SHOWN = 80

_OPCODES = (
    "PROTO FRAME STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT SHORT_BINUNICODE BINUNICODE "
    "BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS "
    "EMPTY_SET ADDITEMS FROZENSET EMPTY_DICT SETITEM SETITEMS MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET "
    "GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD"
)


class StandIn:
    """Inert replacement of an object: stores its arguments, state and items."""

    __slots__ = ("arguments", "items", "state")
    name: ClassVar[str]
    arguments: tuple[Any, ...]
    items: dict[Any, Any]
    state: Any

    def __new__(cls, *arguments: Any) -> StandIn:
        """Store ``arguments``."""
        made = super().__new__(cls)
        made.arguments, made.state, made.items = arguments, None, {}
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[key] = value


def load(file: Path, names: Collection[str]) -> Any:
    """Load a pickle, with a :class:`StandIn` for each object whose class is in ``names``.

    Raises
    ------
    StoreDamagedError
        If the file is not a complete pickle.
    StoreError
        If the file is too large, or needs another class, function or opcode.
    """
    size = file.stat().st_size
    if size > _MAX_FILE_BYTES:
        raise StoreError(
            f"{file} has {size:,} bytes: expected at most {_MAX_FILE_BYTES:,}; save several smaller stores instead"
        )
    data = file.read_bytes()
    try:
        _check_opcodes(data, file)
        return _Unpickler(data, names, file).load()
    except (
        ArithmeticError,
        AttributeError,
        EOFError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
    ) as error:
        raise StoreDamagedError(
            f"{file} is truncated or damaged ({str(error)[:_SHOWN]}): expected an index.pkl of langchain-community; "
            "save the store again"
        ) from error


class _Unpickler(pickle.Unpickler):
    """An unpickler whose classes are all stand-ins."""

    def __init__(self, data: bytes, names: Collection[str], file: Path) -> None:
        super().__init__(io.BytesIO(data), fix_imports=False)
        self._names = names
        self._file = file
        self._classes: dict[str, type[StandIn]] = {}

    def find_class(self, module: str, name: str) -> type[StandIn]:
        """Return the stand-in for an allowed class; raise :class:`StoreError` for any other name."""
        path = f"{module}.{name}"
        if path not in self._names:
            raise _not_allowed(self._file, repr(path[:_SHOWN]))
        if path not in self._classes:
            self._classes[path] = type("StandIn", (StandIn,), {"__slots__": (), "name": path})
        return self._classes[path]


def _check_opcodes(data: bytes, file: Path) -> None:
    """Raise for opcodes that pickle does not write for documents; see the docstring of the module.

    The stack is simulated as in pickle, because hashing tuples that contain each other repeatedly takes exponential
    time.
    """
    allowed = frozenset(_OPCODES.split())
    depths: list[tuple[int, int]] = []  # for each stack entry: its depth as a tuple, and the steps to hash it
    marks: list[int] = []
    memo: dict[int, tuple[int, int]] = {}
    end = 0
    argument: Any
    for opcode, argument, position in pickletools.genops(data):
        name, end = opcode.name, position or 0
        if name not in allowed:
            raise _not_allowed(file, f"the opcode {name} at byte {end:,}")
        if name == "MARK":
            marks.append(len(depths))
        elif name in ("BINGET", "LONG_BINGET"):
            depths.append(memo[argument])
        elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            if name == "LONG_BINPUT" and argument > len(data):
                raise ValueError(f"the memo index {argument:,} is too large")
            memo[len(memo) if argument is None else argument] = depths[-1]
        else:
            before = opcode.stack_before
            marked = pickletools.markobject in before
            start = marks.pop() - before.index(pickletools.markobject) if marked else len(depths) - len(before)
            if start < 0:
                raise ValueError(f"the opcode {name} at byte {end:,} has no operands")
            inside = depths[start:] if "TUPLE" in name else []
            depth = 1 + max((of_part for of_part, _ in inside), default=0) if "TUPLE" in name else 0
            steps = 1 + sum(of_part for _, of_part in inside)
            if depth > _MAX_TUPLE_DEPTH or steps > _STEPS_PER_BYTE * len(data):
                raise StoreError(
                    f"{file} has tuples that are nested more than {_MAX_TUPLE_DEPTH} deep or contain each other "
                    "repeatedly: expected documents"
                )
            depths[start:] = [(depth, steps)] * len(opcode.stack_after)
    if end + 1 != len(data):
        raise ValueError(f"data follow after its end at byte {end:,}")


def _not_allowed(file: Path, name: str) -> StoreError:
    return StoreError(
        f"{file} uses {name}, which documents with plain metadata do not need; nothing in the file was executed: if "
        "you trust it, convert the metadata to plain values with langchain-community and save it again"
    )
