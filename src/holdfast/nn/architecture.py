"""Networks that can be written down: a list of layers in words, so that a saved model is tensors and text."""

import itertools
from collections.abc import Sequence
from typing import Any

from torch import nn

from holdfast.errors import ModelError, did_you_mean
from holdfast.nn.ntk import NTK

Layer = dict[str, Any]

# Layer -> the settings that, with its tensors, say all there is to know about it.
LAYERS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "Linear": (nn.Linear, ("in_features", "out_features")),
    "ReLU": (nn.ReLU, ()),
    "LeakyReLU": (nn.LeakyReLU, ("negative_slope",)),
    "ELU": (nn.ELU, ("alpha",)),
    "GELU": (nn.GELU, ("approximate",)),
    "SiLU": (nn.SiLU, ()),
    "Tanh": (nn.Tanh, ()),
    "Sigmoid": (nn.Sigmoid, ()),
    "Softmax": (nn.Softmax, ("dim",)),
    "Dropout": (nn.Dropout, ("p",)),
    "BatchNorm1d": (nn.BatchNorm1d, ("num_features", "eps", "momentum", "affine")),
    "LayerNorm": (nn.LayerNorm, ("normalized_shape", "eps", "elementwise_affine")),
    "Flatten": (nn.Flatten, ("start_dim", "end_dim")),
    "Identity": (nn.Identity, ()),
    "NTK": (NTK, ("rows", "columns", "append_one")),
}


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """A plain ReLU network with logits at the end."""
    layers: list[nn.Module] = []
    sizes = [inputs, *hidden]
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


def flat_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of a (nested) Sequential in order; any other module is a list of one."""
    if type(module) is nn.Sequential:
        return [leaf for child in module for leaf in flat_layers(child)]
    return [module]


def describe(module: nn.Module) -> list[Layer]:
    """The architecture in words; an error if a layer is not on the list of layers that can be written down."""
    out: list[Layer] = []
    for layer in flat_layers(module):
        name = type(layer).__name__
        if name not in LAYERS or type(layer) is not LAYERS[name][0]:
            raise ModelError(
                f"cannot write down a {name} layer; models that can be saved are nn.Sequential of " + ", ".join(LAYERS)
            )
        entry: Layer = {"layer": name}
        for key in LAYERS[name][1]:
            value: Any = getattr(layer, key)
            entry[key] = [*value] if isinstance(value, tuple) else value
        if isinstance(layer, nn.Linear) and layer.bias is None:
            entry["bias"] = False
        out.append(entry)
    return out


def build(layers: Sequence[Layer]) -> nn.Sequential:
    """The network that `describe` described, with tensors still to be filled in."""
    made: list[nn.Module] = []
    for entry in layers:
        settings = dict(entry)
        name = settings.pop("layer", None)
        if name not in LAYERS:
            raise ModelError(f"unknown layer {name!r} in the model file; {did_you_mean(name, LAYERS)}")
        kind, known = LAYERS[name]
        strange = [k for k in settings if k not in (*known, "bias")]
        if strange:
            raise ModelError(f"layer {name!r} in the model file has an unknown setting {strange[0]!r}")
        try:
            made.append(kind(**settings))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ModelError(f"layer {name!r} in the model file cannot be built: {error}") from None
    return nn.Sequential(*made)
