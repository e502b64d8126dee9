"""A reader of Universal Binary JSON as XGBoost writes it: bytes -> plain values, within bounds.

Every value is a letter for its type and its bytes, big end first; `[$d#L..` is a list of 4-byte
floats, with its length.
"""

from typing import Any

import numpy as np

from holdfast.errors import FileError

MOST_DEPTH = 64
NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
WORDS: dict[str, Any] = {"T": True, "F": False, "Z": None}


def read(data: bytes) -> Any:
    """The value in the bytes, which must end with it."""
    reader = _Reader(data)
    value = reader.value(reader.letter(), 0)
    if reader.at != len(data):
        raise FileError(f"{len(data) - reader.at:,} bytes follow the end of the UBJSON value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def value(self, kind: str, depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise FileError("the UBJSON file is nested too deeply")
        if kind in NUMBERS:
            return self.numbers(kind, 1)[0]
        if kind in WORDS:
            return WORDS[kind]
        if kind not in ("S", "{", "["):
            raise FileError(f"the UBJSON file has a value of an unknown type {kind!r}")
        return (
            self.string()
            if kind == "S"
            else self.object(depth)
            if kind == "{"
            else self.items(depth)
        )

    def object(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while self.peek() != "}":
            key = self.string()
            if key in out:
                raise FileError(f"the key {key!r} appears twice in the UBJSON file")
            out[key] = self.value(self.letter(), depth + 1)
        self.at += 1
        return out

    def items(self, depth: int) -> list[Any]:
        kind = ""
        if self.peek() == "$":
            self.at += 1
            kind = self.letter()
        if self.peek() == "#":
            self.at += 1
            count = self.length()
            if kind in NUMBERS:
                return self.numbers(kind, count)
            if kind or count > len(self.data) - self.at:
                raise FileError("the UBJSON file is cut off in a list")
            return [self.value(self.letter(), depth + 1) for _ in range(count)]
        if kind:
            raise FileError("the UBJSON file has a list of a type but no length")
        out: list[Any] = []
        while self.peek() != "]":
            out.append(self.value(self.letter(), depth + 1))
        self.at += 1
        return out

    def numbers(self, kind: str, count: int) -> list[Any]:
        form = np.dtype(NUMBERS[kind])
        return np.frombuffer(self.step(count * form.itemsize), form).tolist()

    def string(self) -> str:
        part = self.step(self.length())
        try:
            return part.decode()
        except UnicodeDecodeError:
            raise FileError("a string in the UBJSON file is not readable") from None

    def length(self) -> int:
        kind = self.letter()
        if kind not in "iUIlL":
            raise FileError("the UBJSON file has a length that is not an integer")
        return int(self.numbers(kind, 1)[0])

    def step(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise FileError(
                f"the UBJSON file is cut off: {size:,} bytes, {len(self.data) - self.at:,} are "
                "there"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def peek(self) -> str:
        if self.at >= len(self.data):
            raise FileError("the UBJSON file is cut off")
        return chr(self.data[self.at])

    def letter(self) -> str:
        out = self.peek()
        self.at += 1
        return out
