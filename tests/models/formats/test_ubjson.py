"""Universal Binary JSON, within bounds."""

import pytest

from holdfast.errors import FileError
from holdfast.models.formats import ubjson


def test_ubjson_is_read_within_bounds() -> None:
    assert ubjson.read(b"{i\x01a[$i#i\x03\x01\x02\xffi\x01b[TFZSi\x02hi]}") == {
        "a": [1, 2, -1],
        "b": [True, False, None, "hi"],
    }
    for data in (
        b"",
        b"{",
        b"[",
        b"[" * 5000,
        b"[$d#L\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"Si\xffabc",
        b"q",
        b"[$T#i\x05",
        b"i\x01i\x01",
        b"{i\x01aTi\x01aT}",
        b"Si\x02\xff\xff",
        b"[#l\x7f\xff\xff\xff",
        b"SSi\x01a",
    ):
        with pytest.raises(FileError):
            ubjson.read(data)
