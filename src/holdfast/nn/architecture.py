"""Networks that can be written down: a list of layers in words, so a saved model is tensors and
text."""

import itertools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from holdfast._core.checks import did_you_mean
from holdfast.errors import ModelError
from holdfast.nn.ntk import NTK

Layer = dict[str, Any]

# Layer -> the settings that, with its tensors, describe it fully.
LAYERS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    kind.__name__: (kind, tuple(settings.split()))
    for kind, settings in (
        (nn.Linear, "in_features out_features"),
        (nn.ReLU, ""),
        (nn.LeakyReLU, "negative_slope"),
        (nn.ELU, "alpha"),
        (nn.GELU, "approximate"),
        (nn.SiLU, ""),
        (nn.Tanh, ""),
        (nn.Sigmoid, ""),
        (nn.Softmax, "dim"),
        (nn.Dropout, "p"),
        (nn.BatchNorm1d, "num_features eps momentum affine"),
        (nn.Identity, ""),
        (nn.LayerNorm, "normalized_shape eps elementwise_affine"),
        (nn.Flatten, "start_dim end_dim"),
        (NTK, "rows columns append_one"),
    )
}


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """A plain ReLU network with logits at the end."""
    sizes = [inputs, *hidden]
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


def linear_layer(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A layer with these tensors, which are not trained."""
    # draws nothing at random
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    for name, value in (("weight", weight), ("bias", bias)):
        setattr(layer, name, None if value is None else nn.Parameter(value, requires_grad=False))
    return layer


def flat_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of a (nested) Sequential in order; any other module is a list of one."""
    return (
        [leaf for child in module for leaf in flat_layers(child)]
        if type(module) is nn.Sequential
        else [module]
    )


def describe(module: nn.Module) -> list[Layer]:
    """The architecture in words, or an error if a layer cannot be written
    down."""
    out: list[Layer] = []
    for layer in flat_layers(module):
        name = type(layer).__name__
        if not (name in LAYERS and type(layer) is LAYERS[name][0]):
            raise ModelError(
                f"cannot write down a {name} layer; models that can be saved are nn.Sequential "
                f"of {', '.join(LAYERS)}"
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
            raise ModelError(
                f"unknown layer {name!r} in the model file; {did_you_mean(name, LAYERS)}"
            )
        kind, known = LAYERS[name]
        for key in settings:
            if key not in (*known, "bias"):
                raise ModelError(f"layer {name!r} in the model file has an unknown setting {key!r}")
        try:
            made.append(kind(**settings))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ModelError(f"layer {name!r} in the model file cannot be built: {error}") from None
    return nn.Sequential(*made)
