"""Networks that can be written down: a list of layers in words, and analytic gradients for Linear/ReLU ones.

`describe` and `build` turn a `torch.nn.Sequential` into a list of layers and back, so that a saved model is
tensors and text and loading it runs no code from the file. `Engine` evaluates a Linear/ReLU network and its
input gradients by hand, which costs about a third of automatic differentiation on small networks:

    h_0 = x,   a_i = h_{i-1} W_i^T + b_i,   h_i = max(a_i, 0),   scores = a_L
    d scores . v / d h_{i-1} = (d scores . v / d h_i  *  [h_i > 0]) W_i
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import ModelError, did_you_mean
from holdfast.kernel import NTK

FUSED_ADAM: Any = getattr(torch, "_fused_adam_", None)  # what torch.optim.Adam(fused=True) calls
Pullback = Callable[[Tensor], Tensor]  # (n, k) weights on the scores -> (n, d) gradient by the rows
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


class Engine:
    """A Linear/ReLU network evaluated by hand."""

    def __init__(self, weights: list[tuple[Tensor, Tensor]]) -> None:
        self.weights = weights
        self.transposed = [w.T.contiguous() for w, _ in weights]
        self.hidden = [(b, t) for (_, b), t in zip(weights[:-1], self.transposed, strict=False)]
        self.single = len(weights[-1][0]) == 1  # one output
        self.inputs = weights[0][0].shape[1]
        # The products that end in an odd number of columns are slow; a few zero columns more cost less.
        width = -self.inputs % 8 if len(weights) > 1 else 0
        self.backward = [nn.functional.pad(weights[0][0], (0, width)), *[w for w, _ in weights[1:]]]

    @classmethod
    def of(cls, module: nn.Module) -> "Engine | None":
        """The engine for a module, or None if it is not Linear and ReLU layers in turn (dropout is idle)."""
        layers = [m for m in flat_layers(module) if not isinstance(m, nn.Dropout | nn.Identity)]
        plain = all(type(m) is (nn.ReLU if i % 2 else nn.Linear) for i, m in enumerate(layers))
        parts: list[Any] = list(module.modules())
        hooked = any(m._forward_hooks or m._forward_pre_hooks for m in parts)
        if not plain or len(layers) % 2 == 0 or hooked:
            return None
        linear = [m for m in layers if isinstance(m, nn.Linear)]
        zeros = [m.weight.new_zeros(m.out_features) for m in linear]
        return cls(
            [(m.weight.detach(), z if m.bias is None else m.bias.detach()) for m, z in zip(linear, zeros, strict=True)]
        )

    def against(self, way: float, level: float) -> "Engine":
        """For two classes (or one logit): the network whose one output is level - way * (s_1 - s_0)."""
        w, b = self.weights[-1]
        w, b = (w[1:] - w[:1], b[1:] - b[:1]) if len(w) == 2 else (w, b)
        return Engine([*self.weights[:-1], (-way * w, level - way * b)])

    def scores(self, x: Tensor) -> Tensor:
        return self.vjp(x)[0]

    def vjp(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Scores (n, k), and the function from weights on them to gradients by the rows."""
        h, kept = x, list[Tensor]()
        for b, transposed in self.hidden:
            h = torch.addmm(b, h, transposed).relu_()
            kept.append(h)
        w, b = self.weights[-1]

        def pull(v: Tensor) -> Tensor:
            g = v * w if self.single else v @ w
            for i in range(len(kept) - 1, -1, -1):
                g = g.mul_(kept[i].sign_()) @ self.backward[i]  # [h > 0], as h is never negative
            return g[:, : self.inputs]

        return torch.addmm(b, h, self.transposed[-1]), pull
