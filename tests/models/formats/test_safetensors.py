"""safetensors files, read by us."""

from pathlib import Path

import holdfast as hf
from holdfast.nn.architecture import mlp
from support.model_files import SCHEMA
from support.tables import seeded


def test_a_safetensors_file_is_known_whatever_it_is_called(tmp_path: Path) -> None:
    model = hf.Model.of(seeded(mlp(3, (4,), 2)), SCHEMA)
    model.save(tmp_path / "m.safetensors")
    for name in ("m.pkl", "m.onnx", "m"):
        (tmp_path / name).write_bytes((tmp_path / "m.safetensors").read_bytes())
        assert hf.Model.load(tmp_path / name).classes == (0, 1)
