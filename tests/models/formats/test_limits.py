"""Zip bombs, and JSON that readers disagree on."""

import io
import struct
import warnings
import zipfile
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import FileError
from holdfast.models.formats import limits as bounded
from support.model_files import SCHEMA, zipped


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"[" * 1000)
        archive.writestr("big", bytes(bounded.FREE_BYTES + 1))
    path = tmp_path / "bomb.skops"
    path.write_bytes(zeros.getvalue())
    with pytest.raises(FileError, match="zip bomb"):
        hf.Model.load(path, SCHEMA)
    # The same, but claiming to be small: the directory at the end and the header of the entry both
    # lie.
    lying = zeros.getvalue().replace(
        struct.pack("<I", bounded.FREE_BYTES + 1), struct.pack("<I", 10)
    )
    with pytest.raises(FileError, match="zip"):
        bounded.unzip(lying, "it")


def test_zip_files_of_many_or_strange_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST_ENTRIES", 3)
    with pytest.raises(FileError, match="4 entries"):
        bounded.unzip(zipped(a=b"", b=b"", c=b"", d=b""), "it")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(FileError, match="same name"):
        bounded.unzip(file.getvalue(), "it")
    with pytest.raises(FileError, match="damaged zip"):
        bounded.unzip(zipped(a=bytes(100))[:90], "it")
    monkeypatch.setattr(bounded, "MOST_BYTES", 3)
    with pytest.raises(FileError, match="more than the 3"):
        bounded.read_bytes(Path(__file__))


def test_json_is_read_strictly() -> None:
    for text in (b"[" * 100_000, b'{"a": 1, "a": 2}', b"NaN", b"\xff", b"{", b"1" * 5000):
        with pytest.raises(FileError):
            bounded.parse_json(text, "it")
