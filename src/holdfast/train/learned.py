"""Answers of a network that was trained together with the model: one pass, no search.

    z, p = what two hidden layers of the model make of x,     c = generator(z, p),     answer = N(c)

N takes the largest level of each category that the person may have, and keeps to bounds, fixed columns and rules as
every method does. With more than two classes the generator is also told the class to reach.
"""

import itertools
from dataclasses import dataclass
from typing import ClassVar, Self

import pandas as pd
import torch
from torch import Tensor, nn

from holdfast.errors import SettingError
from holdfast.explainer import Explainer, Query, need
from holdfast.model import Model, TorchModel
from holdfast.network import build, flat_layers
from holdfast.target import Goal


@dataclass(frozen=True, eq=False)
class Generator:
    """The recourse half of a network.

    Args:
        layers: from what it sees to a raw answer (n, d).
        features: which layers of the model's module give what it sees.
        model: the fingerprint of that model.
        told: how many classes it is told apart; 0 with two classes.
    """

    layers: nn.Sequential
    features: tuple[int, ...]
    model: str
    told: int = 0

    def __call__(self, module: nn.Module, x: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Raw answers (n, d) to rows x (n, d); `wanted` (n,) are numbers of classes."""
        seen, h = list[Tensor](), x
        for i, layer in enumerate(flat_layers(module)):
            h = layer(h)
            if i in self.features:
                seen.append(h)
        if self.told:
            assert wanted is not None
            seen.append(nn.functional.one_hot(wanted, self.told).to(x.dtype))
        return self.layers(torch.cat(seen, 1))


@dataclass(eq=False, repr=False)
class LearnedRecourse(Explainer):
    """The answers of the recourse network that was trained with the model (`CounterNet`, `RoCourseNet`).

    Args:
        path: the file of the network; left out, `fit` needs nothing and the network must have been put in.
    """

    title: ClassVar[str] = "one pass of the recourse network that was trained with the model"
    paper: ClassVar[str] = "Guo et al. 2023 (CounterNet, RoCourseNet)"
    needs_data: ClassVar[bool] = True
    advice: ClassVar[str] = "ask another method about these rows, or train with a larger l2"

    path: str = ""

    @classmethod
    def of(cls, generator: Generator) -> "LearnedRecourse":
        """With the network at hand."""
        out = cls()
        out.generator_ = generator
        return out

    def fit(self, X: pd.DataFrame | Tensor, model: Model) -> Self:
        """Read the network; the data has been learnt from already."""
        from holdfast.train.counternet import load_generator

        need(bool(self.path), "LearnedRecourse answers with a trained network; give its file as path=...")
        self.generator_: Generator = load_generator(self.path, model.fingerprint())
        return self

    def check(self, model: Model) -> None:
        own = isinstance(model, TorchModel) and model.fingerprint() == self.generator_.model
        need(own, "this recourse network was trained with another model; ask it about its own")

    def search(self, query: Query) -> Tensor:
        model = query.model
        assert isinstance(model, TorchModel)
        answer = query.x
        for _ in query.steps(1):
            wanted = _wanted(query.goal, model(query.x)) if self.generator_.told else None
            raw = self.generator_(model.module, query.x, wanted)
            answer = query.reach.project(query.reach.layout.softmax(raw))
        return answer


def _wanted(goal: Goal, scores: Tensor) -> Tensor:
    """(n,) the class to reach; where any other will do, the likeliest."""
    if goal.sign > 0:
        return goal.label
    own = nn.functional.one_hot(goal.label, goal.k) > 0
    return scores.masked_fill(own, -torch.inf).argmax(1)


def network(sizes: tuple[int, ...], slope: float, dropout: float) -> nn.Sequential:
    """Linear layers with LeakyReLU and dropout between them, tensors still to be filled."""
    layers = list[dict[str, object]]()
    for a, b in itertools.pairwise(sizes[:-1]):
        layers += [{"layer": "Linear", "in_features": a, "out_features": b}]
        layers += [{"layer": "LeakyReLU", "negative_slope": slope}, {"layer": "Dropout", "p": dropout}]
    layers += [{"layer": "Linear", "in_features": sizes[-2], "out_features": sizes[-1]}]
    with torch.device("meta"):
        return build(layers).to_empty(device="cpu").eval().requires_grad_(False)


def filled(net: nn.Sequential, parts: list[tuple[Tensor, Tensor]]) -> nn.Sequential:
    """The network with weights (1, a, b) and biases (1, 1, b) of its Linear layers."""
    linear = [m for m in net if isinstance(m, nn.Linear)]
    if len(linear) != len(parts):
        raise SettingError(f"{len(parts)} layers of weights for {len(linear)} layers")
    for layer, (w, b) in zip(linear, parts, strict=True):
        layer.weight.data.copy_(w[0].T)
        layer.bias.data.copy_(b[0, 0])
    return net
