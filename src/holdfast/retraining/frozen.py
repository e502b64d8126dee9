"""A trained model as a stack of networks with derivatives, and a stack as ordinary modules
again."""

import copy
from collections.abc import Sequence
from typing import Any

import pandas as pd
from torch import Tensor, nn

from holdfast.errors import ModelError, SettingError
from holdfast.models.base import Model
from holdfast.models.black_box import CompiledModel
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import flat_layers
from holdfast.nn.module_stack import stack_of
from holdfast.nn.stack import ModelStack, Stack
from holdfast.nn.stack_derivatives import AnyModule, Leaky, Net, Weights
from holdfast.retraining.outcomes import class_names, class_numbers, outcomes


def net_of(module: nn.Module, count: int) -> tuple[Net, Weights]:
    """The architecture of a module and `count` copies of its parameters; the module itself is not
    touched.

    `Leaky`, by hand, if it is Linear and one kind of ReLU or LeakyReLU in turn (dropout is idle),
    else `AnyModule`.
    """
    layers = [m for m in flat_layers(module) if not isinstance(m, nn.Dropout | nn.Identity)]
    slope = _slope(layers)
    parts: list[Any] = list(module.modules())
    if slope is None or any(m._forward_hooks or m._forward_pre_hooks for m in parts):
        any_net = AnyModule(copy.deepcopy(module).eval().requires_grad_(False))
        return any_net, any_net.weights(count)
    linear = [m for m in layers if isinstance(m, nn.Linear)]
    net = Leaky((linear[0].in_features, *(m.out_features for m in linear)), slope)
    theta = net.weights(count, linear[0].weight.dtype)
    return net, net.load(
        theta, [(m.weight.detach().T[None], m.bias.detach()[None, None]) for m in linear]
    )


def _slope(layers: Sequence[nn.Module]) -> float | None:
    """The slope below 0 of all layers between the Linear ones; None for another kind of
    network."""
    linear = layers[::2]
    kinks = layers[1::2]
    if len(layers) % 2 == 0 or any(type(m) is not nn.Linear or m.bias is None for m in linear):
        return None
    if len(set(linear)) < len(linear) or any(type(m) not in (nn.ReLU, nn.LeakyReLU) for m in kinks):
        return None
    slopes = {m.negative_slope if isinstance(m, nn.LeakyReLU) else 0.0 for m in kinks} or {0.0}
    return slopes.pop() if len(slopes) == 1 and min(slopes) >= 0 else None


def members_of(module: nn.Module, net: Net, theta: Weights) -> ModelStack:
    """The networks as copies of a module with other parameters."""
    out = stack_of(module, len(theta))
    count = len(theta)
    names = [name for name, _ in module.named_parameters()]
    tensors = list[Tensor]()
    if isinstance(net, Leaky):
        for w, b in net.unpadded(theta):
            tensors += [w.transpose(1, 2), b.squeeze(1)]
    else:
        assert isinstance(net, AnyModule)
        tensors = list(net.named(theta.flat).values())
    state = dict(zip(names, tensors, strict=True))
    if not isinstance(out, Stack):
        state |= {name: value.expand(count, *value.shape) for name, value in module.named_buffers()}
    out.load(out.named(state))
    return out


def with_logits(model: Model, what: str) -> TorchModel:
    """The model as a torch module that returns logits, itself or an exact copy; `what` names who
    needs it."""
    if model.is_regression:
        raise ModelError(f"{what} needs a classifier, and this is a regression model")
    if isinstance(model, CompiledModel) and model.program is not None:
        return model.program
    if not isinstance(model, TorchModel):
        raise ModelError(
            f"{what} needs a torch module, got a model without gradients ({type(model).__name__})"
        )
    if model.outputs != "logits":
        returns = f"{what} needs the logits of the model, and its module returns {model.outputs}"
        raise ModelError(
            f"{returns}; leave out the last sigmoid or softmax and wrap it again with hf.Model.of"
        )
    return model


def encoded(model: Model, X: Any) -> Tensor:
    """(n, d) rows of a table, or their encoding, in the model's kind of numbers."""
    x = X.detach().to(model.dtype) if isinstance(X, Tensor) else model.schema.encode(X, model.dtype)
    if not (x.ndim == 2 and x.shape[1] == model.schema.width and len(x) > 0):
        raise SettingError(
            f"need at least one row of {model.schema.width} columns, got {tuple(x.shape)}"
        )
    return x


def numbered(X: pd.DataFrame | Tensor, y: Any, classes: Sequence[Any]) -> Tensor:
    """(n,) the numbers of the outcomes among the model's classes."""
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(index=pd.RangeIndex(len(X)))
    column = outcomes(table, y)
    return class_numbers(column, class_names(table, column, classes))
