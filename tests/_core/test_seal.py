"""Files that say what they are, and notice what was changed."""

import json
from typing import Any

import numpy as np
import pytest

from holdfast._core.seal import sealed, unsealed
from holdfast.errors import FileError

CONTENT = {"a": [1, 2.5, None, True], "b": {"name": "Zoë", "c": (0.1, -0.0)}, "n": float("nan")}
PARTS = [b"first", b"", b"second"]


def test_what_was_sealed_comes_back() -> None:
    text = json.dumps(sealed("thing", 1, CONTENT, PARTS), indent=2)
    found = unsealed("thing", 1, json.loads(text), PARTS)
    assert json.dumps(found) == json.dumps(CONTENT)


def test_every_flipped_bit_is_noticed_or_without_effect() -> None:
    data = json.dumps(sealed("thing", 1, CONTENT, PARTS)).encode()
    noticed = 0
    for bit in range(8 * len(data)):
        flipped = np.frombuffer(data, dtype=np.uint8).copy()
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = unsealed("thing", 1, json.loads(flipped.tobytes().decode()), PARTS)
        except (FileError, ValueError):
            noticed += 1
        else:
            assert json.dumps(found) == json.dumps(CONTENT)
    assert noticed > 7 * len(data)


@pytest.mark.parametrize(
    "parts", [[b"first", b"second"], [b"firs", b"t", b"second"], [b"first", b"", b"Second"], []]
)
def test_other_parts_are_noticed(parts: list[bytes]) -> None:
    with pytest.raises(FileError, match="not as it was written"):
        unsealed("thing", 1, sealed("thing", 1, CONTENT, PARTS), parts)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ([1], "says nothing of a thing"),
        ({"a": 1}, "before files had a format number"),
        (sealed("other", 1, {}), "holds a other, not a thing"),
        (sealed("thing", 2, {}), "written in format 2, and .* reads format 1"),
    ],
)
def test_other_files_are_told_apart(content: Any, match: str) -> None:
    with pytest.raises(FileError, match=match):
        unsealed("thing", 1, content)
