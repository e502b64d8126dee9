"""The recourse network of CounterNet and RoCourseNet: what it makes of rows, and how it is
stored.

It may also be told the class to reach; with more than two classes it always is. A file holds the
model, as `Model.save` writes it, and beside it this network's tensors and a text about it.
"""

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import FileError, HoldfastError, SettingError
from holdfast.models.base import Model
from holdfast.models.formats import safetensors
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import build, describe, flat_layers
from holdfast.nn.stack_derivatives import SLOPE, Leaky, Weights

# in a file: the text about the network, and its tensors
_MARK = "holdfast_generator"
_PREFIX = "generator."
_PARTS: dict[str, type] = {
    "kind": str,
    "settings": dict,
    "layers": list,
    "features": list,
    "told": int,
    "named": list,
}


@dataclass(frozen=True, eq=False)
class RecourseNetwork:
    """The recourse half of a network."""

    layers: nn.Sequential  # from what it sees to a raw answer (n, d)
    features: tuple[int, ...]  # which layers of the model's module give what it sees
    model: str  # the fingerprint of that model
    # how many classes it is told of; 0 if it has to guess the other one of two
    target_columns: int = 0

    def check(self, model: Model) -> None:
        """Raise an error unless it turns what the model makes of rows (n, d) into numbers (n,
        d)."""
        if not isinstance(model, TorchModel):
            raise SettingError("a recourse network belongs to a torch model")
        module = model.module
        k = len(model.classes)
        last = len(flat_layers(module)) - 1
        # A file may say anything: True is an int in Python, and a layer may come twice.
        places = [i for i in self.features if type(i) is int and 0 <= i < last]
        if not (0 < len(places) == len(self.features) and places == sorted({*places})):
            raise SettingError(
                f"the recourse network looks at layers {list(self.features)}, the model has 0 to "
                f"{last}"
            )
        target = self.target_columns
        if target not in ((0, 2) if k == 2 else (k,)):
            raise SettingError(f"the recourse network is told {target} classes of {k}")
        if not all(bool(v.isfinite().all()) for v in self.layers.state_dict().values()):
            raise SettingError("the recourse network has non-finite weights")
        x = model.schema.probe.to(model.dtype)
        try:
            with model.eval_mode():
                shape = self(module, x, torch.zeros(len(x), dtype=torch.int64)).shape
        except RuntimeError as error:
            raise SettingError(f"the recourse network does not fit its model: {error}") from None
        if shape != x.shape:
            raise SettingError(
                f"the recourse network makes rows of {shape[1:]} columns, not {x.shape[1]}"
            )

    def __call__(self, module: nn.Module, x: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Raw answers (n, d) to rows x (n, d); `wanted` (n,) are numbers of classes."""
        seen = list[Tensor]()
        h = x
        for i, layer in enumerate(flat_layers(module)[: self.features[-1] + 1]):
            h = layer(h)
            if i in self.features:
                seen.append(h)
        if self.target_columns:
            assert wanted is not None
            seen.append(nn.functional.one_hot(wanted, self.target_columns).to(x.dtype))
        return self.layers(torch.cat(seen, 1))


def network_of(net: Leaky, theta: Weights, i: int, dropout: float) -> nn.Sequential:
    """Network i of a stack: Linear layers with LeakyReLU and dropout between them."""
    layers = list[dict[str, object]]()
    for a, b in itertools.pairwise(net.sizes[:-1]):
        layers += [{"layer": "Linear", "in_features": a, "out_features": b}]
        layers += [
            {"layer": "LeakyReLU", "negative_slope": SLOPE},
            {"layer": "Dropout", "p": dropout},
        ]
    layers += [{"layer": "Linear", "in_features": net.sizes[-2], "out_features": net.sizes[-1]}]
    with torch.device("meta"):
        out = build(layers).to_empty(device="cpu").to(theta.flat.dtype).eval().requires_grad_(False)
    linear = [layer for layer in out if isinstance(layer, nn.Linear)]
    for layer, (w, b) in zip(linear, net.unpadded(theta), strict=True):
        layer.weight.data.copy_(w[i].T)
        layer.bias.data.copy_(b[i, 0])
    return out


# ---- files


def save(
    path: str | Path, model: TorchModel, network: RecourseNetwork, about: Mapping[str, Any]
) -> None:
    """Model and recourse network in one safetensors file that runs no code; `about` has `kind`,
    `settings` and `named`."""
    tensors, metadata = model.contents()
    tensors |= {
        _PREFIX + name: value.clone() for name, value in network.layers.state_dict().items()
    }
    content = {
        "layers": describe(network.layers),
        "features": list(network.features),
        "told": network.target_columns,
    }
    safetensors.write(path, tensors, {**metadata, _MARK: content | dict(about)})


def holds_recourse(path: str | os.PathLike[str]) -> bool:
    """Is there a recourse network in the file?"""
    return _MARK in safetensors.metadata_of(path)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a file says about its recourse network, and the network's tensors."""
    content, tensors = safetensors.read_marked(
        path, _MARK, "a recourse network", "CounterNet.save", lambda name: name.startswith(_PREFIX)
    )
    with safetensors.damage_reported(path):
        wrong = [name for name, kind in _PARTS.items() if not isinstance(content[name], kind)]
    if wrong:
        raise FileError(f"{str(path)!r} is damaged: {wrong[0]!r} cannot be {content[wrong[0]]!r}")
    return content, tensors


def load(path: str | os.PathLike[str], model: Model) -> RecourseNetwork:
    """The recourse network in a file, for the model it was trained with."""
    content, tensors = read(path)
    try:
        with safetensors.damage_reported(path):
            # no memory before the tensors are there: the file only claims these sizes
            with torch.device("meta"):
                layers: nn.Sequential = build(content["layers"])
            layers.load_state_dict(
                {name.removeprefix(_PREFIX): v for name, v in tensors.items()}, assign=True
            )
            layers.eval().requires_grad_(False)
            network = RecourseNetwork(
                layers, tuple(content["features"]), model.fingerprint(), content["told"]
            )
            network.check(model)
            return network
    except FileError:
        raise
    except HoldfastError as error:
        raise FileError(f"{str(path)!r}: {error}") from None
