"""How often the header of a model's file is read."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.models.formats import safetensors


def header_reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose headers are read from now on."""
    reads = list[Path]()
    read_header = safetensors.read_header

    def counted(path: Path) -> Any:
        reads.append(path)
        return read_header(path)

    monkeypatch.setattr(safetensors, "read_header", counted)
    return reads
