"""Pickle's stack machine without what makes pickles dangerous: it imports nothing, calls nothing, sets no attribute.

Numbers, texts, lists, tuples and dictionaries become what they are, sets become lists, and objects become
:class:`Made`, a note of how they would have been made. See :mod:`pickletools` for what the opcodes mean.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from ragembed.langchain.community.opcodes import CODES, NAMES, Global, Made

_FLOAT = struct.Struct(">d")
_NEWEST = 5
_SHOWN = 100
_KEYS = (str, int, float, bool, type(None), bytes, Made)
"""What may be a key: not a tuple, as hashing one that is nested deep enough ends the process."""


class BrokenPickleError(ValueError):
    """The bytes are no pickle, or only a part of one."""


class RefusedPickleError(ValueError):
    """A pickle has more in it than data and the objects that are allowed; the message says what."""


def load(data: bytes, allowed: Collection[Global]) -> Any:
    """Return what the pickle ``data`` describes.

    Raises :class:`RefusedPickleError` for a class or function that is not among ``allowed``, and for opcodes that only
    other programs than today's pickle write; :class:`BrokenPickleError` for what is no whole pickle. The memory that it
    takes is bounded by the size of ``data``, whatever sizes are written in there.
    """
    machine = _Machine(data, allowed)
    try:
        result = machine.run()
    except (BrokenPickleError, RefusedPickleError):
        raise
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise BrokenPickleError(f"is broken off or damaged at byte {machine.at:,}") from error
    if machine.at != len(data):
        raise BrokenPickleError(f"goes on behind its end at byte {machine.at:,}")
    return result


class _Machine:
    """The state of reading; everything that goes wrong in a step is an error that :func:`load` catches."""

    __slots__ = ("_allowed", "_below", "_data", "_memo", "_size", "at", "stack")

    def __init__(self, data: bytes, allowed: Collection[Global]) -> None:
        self._data = data
        self._size = len(data)
        self._memo: dict[int, Any] = {}
        self._below: list[list[Any]] = []
        self._allowed = allowed
        self.at = 0
        self.stack: list[Any] = []

    def run(self) -> Any:
        data, stop = self._data, CODES["STOP"]
        while (code := data[self.at]) != stop:
            step = _STEPS.get(code)
            if step is None:
                raise self._unknown(code)
            self.at += 1
            step(self)
        self.at += 1
        (result,) = self.stack
        if self._below:
            raise ValueError("a mark is left over")
        return result

    def _unknown(self, code: int) -> ValueError:
        if self.at == 0:
            return BrokenPickleError(f"is no pickle: it begins with {self._data[:8]!r}")
        name = NAMES.get(code, f"{code:#04x}")
        return RefusedPickleError(f"asks for the opcode {name} at byte {self.at:,}")

    def take(self, size: int) -> bytes:
        self.require(size)
        start = self.at
        self.at = end = start + size
        return self._data[start:end]

    def require(self, size: int) -> None:
        if self.at + size > self._size:
            raise ValueError("the data end before that")

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def line(self) -> str:
        end = self._data.index(b"\n", self.at)
        text = self.take(end - self.at).decode("utf-8")
        self.at += 1
        return text

    def mark(self) -> None:
        self._below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self._below.pop()
        return items

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def remember(self, index: int | None = None) -> None:
        self._memo[len(self._memo) if index is None else index] = self.stack[-1]

    def recall(self, index: int) -> None:
        self.stack.append(self._memo[index])

    def refer(self, module: Any, name: Any) -> None:
        asked = Global(_of(module, str), _of(name, str))
        if asked not in self._allowed:
            raise RefusedPickleError(f"asks for {str(asked)[:_SHOWN]!r}")
        self.stack.append(asked)

    def make(self) -> None:
        arguments = _of(self.stack.pop(), tuple)
        self.stack.append(Made(_of(self.stack.pop(), Global), arguments))

    def build(self) -> None:
        state = self.stack.pop()
        made = _of(self.stack[-1], Made)
        if made.state is not None:
            raise ValueError("an object is given its state twice")
        made.state = state

    def extend(self, values: list[Any]) -> None:
        _of(self.stack[-1], list).extend(values)

    def put(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        items = target.items if type(target) is Made else _of(target, dict)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if type(key) not in _KEYS:
                raise TypeError(f"a {type(key).__name__} is no key")
            items[key] = value


_Step = Callable[[_Machine], None]


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} stands where a {kind.__name__} is expected")
    return value


def _push(value: Any) -> _Step:
    return lambda machine: machine.push(value)


def _new(kind: type) -> _Step:
    return lambda machine: machine.push(kind())


def _integer(width: int, *, signed: bool = False) -> _Step:
    return lambda machine: machine.push(int.from_bytes(machine.take(width), "little", signed=signed))


def _long(width: int) -> _Step:
    return lambda machine: machine.push(int.from_bytes(machine.take(machine.number(width)), "little", signed=True))


def _text(width: int) -> _Step:
    return lambda machine: machine.push(machine.take(machine.number(width)).decode("utf-8", "surrogatepass"))


def _bytes(width: int) -> _Step:
    return lambda machine: machine.push(machine.take(machine.number(width)))


def _tuple(size: int) -> _Step:
    def step(machine: _Machine) -> None:
        items = tuple(machine.stack[-size:])
        if len(items) < size:
            raise IndexError("the stack has fewer values")
        machine.stack[-size:] = [items]

    return step


def _protocol(machine: _Machine) -> None:
    if (version := machine.number(1)) > _NEWEST:
        raise RefusedPickleError(f"is of version {version} of pickle, of which {_NEWEST} is the newest known")


def _frame(machine: _Machine) -> None:
    machine.require(machine.number(8))  # which could be read ahead, were it not there already


def _from_stack(machine: _Machine) -> None:
    name = machine.stack.pop()
    machine.refer(machine.stack.pop(), name)


def _put_one(machine: _Machine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    machine.put([key, value])


_STEPS: Mapping[int, _Step] = MappingProxyType(
    {
        CODES[name]: step
        for name, step in {
            "PROTO": _protocol,
            "FRAME": _frame,
            "NONE": _push(None),
            "NEWTRUE": _push(True),
            "NEWFALSE": _push(False),
            "BININT": _integer(4, signed=True),
            "BININT1": _integer(1),
            "BININT2": _integer(2),
            "LONG1": _long(1),
            "LONG4": _long(4),
            "BINFLOAT": lambda machine: machine.push(_FLOAT.unpack(machine.take(_FLOAT.size))[0]),
            "SHORT_BINUNICODE": _text(1),
            "BINUNICODE": _text(4),
            "BINUNICODE8": _text(8),
            "SHORT_BINBYTES": _bytes(1),
            "BINBYTES": _bytes(4),
            "BINBYTES8": _bytes(8),
            "EMPTY_TUPLE": _push(()),
            "TUPLE1": _tuple(1),
            "TUPLE2": _tuple(2),
            "TUPLE3": _tuple(3),
            "TUPLE": lambda machine: machine.push(tuple(machine.since_mark())),
            "EMPTY_LIST": _new(list),
            "APPEND": lambda machine: machine.extend([machine.stack.pop()]),
            "APPENDS": lambda machine: machine.extend(machine.since_mark()),
            "EMPTY_SET": _new(list),
            "ADDITEMS": lambda machine: machine.extend(machine.since_mark()),
            "FROZENSET": lambda machine: machine.push(machine.since_mark()),
            "EMPTY_DICT": _new(dict),
            "SETITEM": _put_one,
            "SETITEMS": lambda machine: machine.put(machine.since_mark()),
            "MARK": _Machine.mark,
            "MEMOIZE": _Machine.remember,
            "BINPUT": lambda machine: machine.remember(machine.number(1)),
            "LONG_BINPUT": lambda machine: machine.remember(machine.number(4)),
            "BINGET": lambda machine: machine.recall(machine.number(1)),
            "LONG_BINGET": lambda machine: machine.recall(machine.number(4)),
            "GLOBAL": lambda machine: machine.refer(machine.line(), machine.line()),
            "STACK_GLOBAL": _from_stack,
            "REDUCE": _Machine.make,
            "NEWOBJ": _Machine.make,
            "BUILD": _Machine.build,
        }.items()
    }
)
