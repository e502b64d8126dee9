"""Files that run code when they are loaded: only for files of one's own, and only if asked.

Pickles (also those of joblib, cloudpickle, dill and torch) call whatever they name. A TorchScript
file is a program; so is a .pt2 file of torch.export, whose shape expressions and guards are
evaluated as Python.
"""

import contextlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast._core.checks import untyped
from holdfast.errors import FileError, UnsafeFileError
from holdfast.models.formats.detect import Kind

BETTER = (
    "save a torch network with `hf.Model.of(module, schema).save('model.safetensors')`, a "
    "scikit-learn estimator with `skops.io.dump`, or export either to ONNX"
)


def refusal(path: Path, kind: Kind) -> UnsafeFileError:
    """The error for a file that can run code, unless somebody said it is trusted."""
    return UnsafeFileError(
        f"{str(path)!r} is {kind.title}: it can run any code when it is loaded, so it is refused, "
        "and nothing of it was run. If you made it and trust it, pass trust=True "
        f"(--trust-model-code); better: {BETTER}"
    )


def load(path: Path, kind: Kind) -> Any:
    """Whatever is in a file that somebody trusts."""
    try:
        if kind.name == "pt2":
            return Exported(untyped("torch.export").load(path).module())
        if kind.name == "torchscript":
            return untyped("torch.jit").load(path)
        with contextlib.suppress(Exception):
            return torch.load(path, weights_only=False)
        return untyped("joblib").load(path)
    except Exception as error:
        raise FileError(
            f"cannot load {str(path)!r}, {kind.title}: {type(error).__name__}: {error}"
        ) from None


class Exported(nn.Module):
    """A program of torch.export, which has no modes to switch between, as an ordinary module."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.program = [program]  # in a list: not one of the module's parts

    def forward(self, x: Tensor) -> Tensor:
        return self.program[0](x)
