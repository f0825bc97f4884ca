"""A pickle machine that can do nothing but build plain values.

Python's own unpickler calls whatever a file names. This one knows the opcodes of containers,
numbers and strings; a name in the file is looked up in a table of the caller's, and everything
else is refused before it is touched. It imports nothing and calls nothing from a file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from elmore._messages import shown
from elmore.errors import FormatError
from elmore.limits import LIMITS, Limits

__all__ = ["Names", "unpickle"]

# (module, name) -> what it makes of its arguments.
Names = Mapping[tuple[str, str], Callable[..., Any]]


class _Mark:
    """Where a container's items begin on the stack."""


class _Name:
    """A name that a file gave and the caller knows; only REDUCE may use it."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make


_MARK = _Mark()
_NUMBERS: dict[int, tuple[str, int]] = {  # opcode -> format, bytes
    ord("J"): ("<i", 4),
    ord("K"): ("<B", 1),
    ord("M"): ("<H", 2),
    ord("G"): (">d", 8),
}
_TEXTS: dict[int, tuple[int, str]] = {  # opcode -> bytes of the length, kind
    ord("X"): (4, "text"),
    0x8C: (1, "text"),
    0x8D: (8, "text"),
    ord("U"): (1, "old"),
    ord("T"): (4, "old"),
    ord("C"): (1, "bytes"),
    ord("B"): (4, "bytes"),
    0x8E: (8, "bytes"),
}
_CONSTANTS: dict[int, Any] = {ord("N"): None, 0x88: True, 0x89: False}


def unpickle(
    stream: BinaryIO,
    *,
    what: str,
    names: Names,
    persistent: Callable[[Any], Any] | None = None,
    limits: Limits = LIMITS,
) -> Any:
    """Read one pickle from where a stream stands.

    Args:
        stream: stands after the pickle when this returns.
        what: the file for messages.
        names: all that the pickle may name.
        persistent: makes values of persistent ids; None refuses them.
        limits: sizes allowed.

    Raises:
        FormatError: broken, too large, or asking for anything that is not a plain value.
    """
    return _Machine(stream, what, names, persistent, limits).run()


class _Machine:
    def __init__(
        self,
        stream: BinaryIO,
        what: str,
        names: Names,
        persistent: Callable[[Any], Any] | None,
        limits: Limits,
    ) -> None:
        self._stream = stream
        self._what = what
        self._names = names
        self._persistent = persistent
        self._steps = limits.pickle_steps
        self._room = limits.pickle_bytes
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(self._steps):
            opcode = self._read(1)[0]
            if opcode == ord("."):
                if len(self._stack) != 1:
                    raise self._error("ends with other than one value")
                return self._plain(self._stack.pop())
            self._step(opcode)
        raise self._error(f"takes more than the {self._steps} steps allowed")

    def _step(self, opcode: int) -> None:
        push = self._stack.append
        if opcode in _CONSTANTS:
            push(_CONSTANTS[opcode])
        elif opcode in _NUMBERS:
            layout, size = _NUMBERS[opcode]
            push(struct.unpack(layout, self._read(size))[0])
        elif opcode in _TEXTS:
            push(self._text(*_TEXTS[opcode]))
        elif opcode in _STEPS:
            _STEPS[opcode](self)
        else:
            raise self._error(f"has the opcode {opcode:#04x}, which no file of tensors needs")

    # ------------------------------------------------------------- reading

    def _read(self, size: int) -> bytes:
        if size > self._room:
            raise self._error("describes its tensors in more bytes than are allowed")
        self._room -= size
        data = self._stream.read(size)
        if len(data) != size:
            raise self._error("ends in the middle of a pickle")
        return data

    def _number(self, size: int) -> int:
        return int.from_bytes(self._read(size), "little")

    def _line(self) -> str:
        data = self._stream.readline(256)
        if not data.endswith(b"\n"):
            raise self._error("has a name that does not end")
        self._room -= len(data)
        return data[:-1].decode("utf-8", "replace")

    def _text(self, length: int, kind: str) -> str | bytes:
        data = self._read(self._number(length))
        if kind == "bytes":
            return data
        try:
            # Strings of Python 2 hold bytes; those of array data come back by latin-1.
            return data.decode("latin-1" if kind == "old" else "utf-8")
        except UnicodeDecodeError:
            raise self._error("has a string that is no UTF-8") from None

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise self._error("takes a value where there is none")
        return self._stack.pop()

    def _plain(self, value: Any) -> Any:
        if isinstance(value, _Name | _Mark):
            raise self._error("uses a name as a value")
        return value

    def _items(self) -> list[Any]:
        for k in range(len(self._stack) - 1, -1, -1):
            if self._stack[k] is _MARK:
                items = self._stack[k + 1 :]
                del self._stack[k:]
                return items
        raise self._error("closes a container that it never opened")

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise self._error(f"fills a {kind.__name__} where there is none")
        return self._stack[-1]

    # ------------------------------------------------------------- opcodes

    def _skip(self, size: int) -> None:
        self._read(size)

    def _drop(self) -> None:
        self._pop()

    def _new_dict(self) -> None:
        items = self._items()
        self._stack.append({})
        self._fill_dict(items)

    def _tuple(self, size: int | None) -> None:
        if size is None:
            self._stack.append(tuple(self._items()))
        else:
            self._stack.append(tuple([self._pop() for _ in range(size)][::-1]))

    def _fill_list(self, items: list[Any]) -> None:
        self._top(list).extend(items)

    def _fill_dict(self, items: list[Any]) -> None:
        target = self._top(dict)
        if len(items) % 2:
            raise self._error("has a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int | bytes):
                raise self._error(f"has a key of type {type(key).__name__}")
            target[key] = value

    def _put(self, place: int) -> None:
        if not self._stack or self._stack[-1] is _MARK:
            raise self._error("remembers a value where there is none")
        self._memo[place] = self._stack[-1]

    def _get(self, place: int) -> None:
        if place not in self._memo:
            raise self._error(f"recalls the value {place}, which it never stored")
        self._stack.append(self._memo[place])

    def _long(self, length: int) -> None:
        size = self._number(length)
        if size > 32:
            raise self._error(f"has a number of {size} bytes")
        self._stack.append(int.from_bytes(self._read(size), "little", signed=True))

    def _name(self, module: Any, name: Any) -> None:
        # Only strings may be shown: nested tuples can be short in a file and endless in print.
        if not isinstance(module, str) or not isinstance(name, str):
            raise self._error("has a name that is no string")
        make = self._names.get((module, name))
        if make is None:
            raise self._error(f"names {shown(f'{module}.{name}', 80)}, which is not allowed")
        self._stack.append(_Name(make))

    def _stack_name(self) -> None:
        name, module = self._pop(), self._pop()
        self._name(module, name)

    def _reduce(self) -> None:
        arguments, name = self._pop(), self._pop()
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise self._error("calls something that is no name")
        self._make(name, arguments)

    def _make(self, name: _Name, arguments: tuple[Any, ...]) -> None:
        arguments = tuple(a.make if isinstance(a, _Name) else a for a in arguments)
        try:
            self._stack.append(name.make(*arguments))
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise self._error(f"builds a value wrongly ({shown(error, 60)})") from None

    def _build(self) -> None:
        state, value = self._pop(), self._top(object)
        setter = getattr(value, "set_pickled_state", None)
        if setter is not None:
            try:
                setter(state)
            except (TypeError, ValueError, IndexError, OverflowError) as error:
                raise self._error(f"builds a value wrongly ({shown(error, 60)})") from None
        elif not isinstance(value, dict):  # attributes of a state dict (_metadata) do not matter
            raise self._error("sets the state of a value that has none")

    def _persistent_id(self) -> None:
        key = self._pop()
        if self._persistent is None:
            raise self._error("refers to something outside")
        parts = (
            tuple(k.make if isinstance(k, _Name) else k for k in key) if type(key) is tuple else key
        )
        self._stack.append(self._persistent(parts))

    def _error(self, problem: str) -> FormatError:
        return FormatError(
            f"'{self._what}' {problem}; it is no file of tensors or is damaged, get another copy"
        )


_STEPS: dict[int, Callable[[_Machine], None]] = {
    0x80: lambda m: m._skip(1),  # version of the protocol
    0x95: lambda m: m._skip(8),  # length of a frame
    ord("("): lambda m: m._stack.append(_MARK),
    ord("0"): lambda m: m._drop(),
    ord(")"): lambda m: m._stack.append(()),
    ord("]"): lambda m: m._stack.append([]),
    ord("}"): lambda m: m._stack.append({}),
    ord("l"): lambda m: m._stack.append(m._items()),
    ord("d"): lambda m: m._new_dict(),
    ord("t"): lambda m: m._tuple(None),
    0x85: lambda m: m._tuple(1),
    0x86: lambda m: m._tuple(2),
    0x87: lambda m: m._tuple(3),
    ord("a"): lambda m: m._fill_list([m._pop()]),
    ord("e"): lambda m: m._fill_list(m._items()),
    ord("s"): lambda m: m._fill_dict([m._pop(), m._pop()][::-1]),
    ord("u"): lambda m: m._fill_dict(m._items()),
    ord("q"): lambda m: m._put(m._number(1)),
    ord("r"): lambda m: m._put(m._number(4)),
    0x94: lambda m: m._put(len(m._memo)),
    ord("h"): lambda m: m._get(m._number(1)),
    ord("j"): lambda m: m._get(m._number(4)),
    0x8A: lambda m: m._long(1),
    0x8B: lambda m: m._long(4),
    ord("c"): lambda m: m._name(m._line(), m._line()),
    0x93: lambda m: m._stack_name(),
    ord("R"): lambda m: m._reduce(),
    ord("b"): lambda m: m._build(),
    ord("Q"): lambda m: m._persistent_id(),
}
