"""What a file is, told by its content."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.errors import FileError
from holdfast.models.formats.detect import kind_of_file
from support.model_files import SCHEMA, zipped


def test_other_files_are_told_what_they_are(tmp_path: Path) -> None:
    for content, kind in (
        (b"", "empty"),
        (b"hello there", "unknown"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "keras"),
        (b"CBM1" + bytes(64), "catboost"),
        (zipped(a_DOT_txt=b"a"), "zip"),
        (bytes(100), "unknown"),
        (b"{}", "unknown"),
        (b'{"a": 1}', "unknown"),
    ):
        (tmp_path / "m").write_bytes(content)
        assert kind_of_file(tmp_path / "m").name == kind
        with pytest.raises(FileError, match="models are read from"):
            hf.Model.load(tmp_path / "m", SCHEMA)
    with pytest.raises(FileError, match="no model file"):
        hf.Model.load(tmp_path, SCHEMA)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_some_kind(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m"
        path.write_bytes(data)
        assert kind_of_file(path).title
        with pytest.raises(FileError):
            hf.Model.load(path, SCHEMA)
