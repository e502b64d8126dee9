"""safetensors files, read by us."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import holdfast as hf
from holdfast.errors import FileError
from holdfast.models.formats import safetensors
from holdfast.nn.architecture import mlp
from support.model_files import SCHEMA
from support.tables import seeded


def test_a_safetensors_file_is_known_whatever_it_is_called(tmp_path: Path) -> None:
    model = hf.Model.of(seeded(mlp(3, (4,), 2)), SCHEMA)
    model.save(tmp_path / "m.safetensors")
    for name in ("m.pkl", "m.onnx", "m"):
        (tmp_path / name).write_bytes((tmp_path / "m.safetensors").read_bytes())
        assert hf.Model.load(tmp_path / name).classes == (0, 1)


REALS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def header_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size])


def test_every_dtype_is_read_as_it_was_written(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    tensors = {
        str(dtype): (100 * torch.rand(3, 5, generator=random)).to(dtype)
        for dtype in (*REALS, *INTEGERS)
    }
    tensors |= {"bool": torch.eye(4) > 0, "empty": torch.zeros(0, 3), "one": torch.tensor(2.5)}
    save_file(tensors, tmp_path / "m", metadata={"a": "b"})
    written = header_of(tmp_path / "m")
    names = {written[name]["dtype"]: tensor.dtype for name, tensor in tensors.items()}
    assert names == safetensors.DTYPES  # as the library that writes the files calls them
    metadata, found = safetensors.read(tmp_path / "m")
    assert metadata == safetensors.metadata_of(tmp_path / "m") == {"a": "b"}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    assert set(safetensors.read(tmp_path / "m", lambda name: name == "one")[1]) == {"one"}
    assert safetensors.metadata_of(tmp_path / "none") == {}


def file_of(header: object, data: bytes = bytes(8)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(**changes: object) -> dict[str, object]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        struct.pack("<Q", 1 << 62) + b"{}",
        file_of(b"[" * 100_000),
        file_of([]),
        file_of(b'{"a": 1, "a": 2}'),
        file_of({"a": 3}),
        file_of(tensor(dtype="F31")),
        file_of(tensor(shape=[1 << 62])),
        file_of(tensor(shape=[-1, -2])),
        file_of(tensor(shape=[2.0])),
        file_of(tensor(shape=[True, 2])),
        file_of(tensor(shape="2")),
        file_of(tensor(data_offsets=[0, 7])),
        file_of(tensor(data_offsets=[8, 0])),
        file_of(tensor(data_offsets=[4, 12])),
        file_of(tensor(data_offsets=[0])),
        file_of(tensor(), bytes(9)),
        file_of(tensor(), bytes(7)),
        file_of(tensor() | {"b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}),
        file_of(tensor() | {"__metadata__": {"a": 1}}),
        file_of(tensor() | {"__metadata__": "a"}),
    ],
)
def test_headers_that_do_not_fit_the_file_are_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(FileError):
        safetensors.read(tmp_path / "m")
    (tmp_path / "m").write_bytes(file_of(tensor()))
    assert safetensors.read(tmp_path / "m")[1]["a"].tolist() == [0.0, 0.0]
