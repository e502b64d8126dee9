"""Tensors and texts in one file."""

from pathlib import Path

import pytest
import torch

from holdfast._core.tensor_file import has_text, read_tensors, write_tensors
from holdfast.errors import FileError


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a.w": torch.arange(3), "b.w": torch.eye(2)}, {"mark": "words"})
    texts, tensors = read_tensors(path)
    assert texts == {"mark": "words"}
    assert torch.equal(tensors["a.w"], torch.arange(3))
    assert set(tensors) == {"a.w", "b.w"}
    assert list(read_tensors(path, "b.")[1]) == ["b.w"]
    assert has_text(path, "mark")
    assert not has_text(path, "other")
    assert not has_text(tmp_path / "gone", "mark")


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot write .*no.x\.safetensors"):
        write_tensors(tmp_path / "no" / "x.safetensors", {"a": torch.ones(1)}, {})
    with pytest.raises(FileError, match=r"there is no file .*gone"):
        read_tensors(tmp_path / "gone.safetensors")
    (tmp_path / "text.safetensors").write_text("no tensors")
    with pytest.raises(FileError, match=r"text\.safetensors' is not a readable safetensors file"):
        read_tensors(tmp_path / "text.safetensors")
