"""A small reader of protocol buffers: bytes -> dictionaries, as told by a table of fields.

A message is a list of fields, each a key (number << 3 | wire type) and a value: a number of 7 bits
to a byte (0), 8 bytes (1), 4 bytes (5), or a length and that many bytes (2), which are a string, a
message, or numbers one after the other. Everything is read in place and within the bounds of the
message it is in; whatever does not fit is an error.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.errors import FileError

Type = Literal["int", "float", "double", "string", "bytes"]
MOST_DEPTH = 16
MOST_FIELDS = 20_000_000
SIZES = {1: ("<d", 8), 5: ("<f", 4)}


@dataclass(frozen=True)
class Field:
    """One field of a message: its name, the type of its values or the message they are, and whether
    there are many."""

    name: str
    type: "Type | Message"
    many: bool = False


@dataclass(eq=False)
class Message:
    """Field number -> field. Fields of other numbers are skipped."""

    name: str
    fields: Mapping[int, Field] = field(default_factory=dict[int, Field])


Kind = Type | Message


def message(title: str, /, **fields: tuple[int, Kind | list[Kind]]) -> Message:
    """A message with fields of these names: each a number, and the type of its value, in brackets
    if many."""
    out: dict[int, Field] = {}
    for name, (number, kind) in fields.items():
        out[number] = (
            Field(name, kind[0], many=True) if isinstance(kind, list) else Field(name, kind)
        )
    return Message(title, out)


def read(data: bytes, kind: Message) -> dict[str, Any]:
    """The message in the bytes; absent fields are None, or an empty list if there can be many."""
    return _MessageReader(data).message(0, len(data), kind, 0)


class _MessageReader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.count = 0

    def message(self, start: int, end: int, kind: Message, depth: int) -> dict[str, Any]:
        # Fields that are not known are stepped over, by the length that their wire type gives.
        if depth > MOST_DEPTH:
            raise FileError(f"{kind.name}: messages are nested too deeply")
        out: dict[str, Any] = {
            f.name: list[Any]() if f.many else None for f in kind.fields.values()
        }
        self.at = start
        while self.at < end:
            self.count += 1
            if self.count > MOST_FIELDS:
                raise FileError(f"{kind.name}: more than {MOST_FIELDS:,} fields")
            key = self.number(end)
            known = kind.fields.get(key >> 3)
            wire = key & 7
            if wire == 0:
                self.keep(out, known, "int", signed(self.number(end)), kind)
            elif wire in SIZES:
                form, size = SIZES[wire]
                (value,) = struct.unpack_from(form, self.data, self.step(size, end, kind))
                self.keep(out, known, "float" if size == 4 else "double", value, kind)
            elif wire == 2:
                length = self.number(end)
                here = self.step(length, end, kind)
                if known:
                    self.stretch(out, known, here, here + length, kind, depth)
                    self.at = here + length
            else:
                raise FileError(f"{kind.name}: a field is written in an unknown way ({wire})")
        return out

    def stretch(
        self, out: dict[str, Any], known: Field, start: int, end: int, kind: Message, depth: int
    ) -> None:
        """A value that has a length."""
        if isinstance(known.type, Message):
            self.keep(out, known, known.type, self.message(start, end, known.type, depth + 1), kind)
        elif known.type == "bytes":
            self.keep(out, known, "bytes", self.data[start:end], kind)
        elif known.type == "string":
            try:
                self.keep(out, known, "string", self.data[start:end].decode(), kind)
            except UnicodeDecodeError:
                raise FileError(f"{kind.name}.{known.name} is not a string") from None
        elif not known.many:
            raise FileError(f"{kind.name}.{known.name} should be one number")
        elif known.type == "int":
            self.at = start
            while self.at < end:
                out[known.name].append(signed(self.number(end)))
        else:
            form, size = ("f", 4) if known.type == "float" else ("d", 8)
            if (end - start) % size:
                raise FileError(f"{kind.name}.{known.name} is cut off")
            out[known.name].extend(
                struct.unpack_from(f"<{(end - start) // size}{form}", self.data, start)
            )

    def keep(
        self,
        out: dict[str, Any],
        known: Field | None,
        type: "Type | Message",
        value: Any,
        kind: Message,
    ) -> None:
        if known is None:
            return
        if known.type != type:
            raise FileError(f"{kind.name}.{known.name} is of the wrong type")
        if known.many:
            out[known.name].append(value)
        else:
            out[known.name] = value

    def number(self, end: int) -> int:
        value = 0
        for shift in range(0, 70, 7):
            if self.at >= end:
                raise FileError("the file is cut off, or damaged, in the middle of a number")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (1 << 64) - 1
        raise FileError("a number in the file is too long")

    def step(self, length: int, end: int, kind: Message) -> int:
        """Over the next bytes; where they begin."""
        here = self.at
        if length > end - here:
            raise FileError(
                f"{kind.name} is cut off: {length:,} bytes are announced and {end - here:,} are "
                "there"
            )
        self.at = here + length
        return here


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
