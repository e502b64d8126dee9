"""Answers of a network that was trained together with the model: one pass, no search.

    z, p = what two hidden layers of the model make of x,     c = generator(z, p),     answer = N(c)

N takes the largest level of each category that the person may have, and keeps to bounds, fixed columns and rules as
every method does. The generator may also be told the class to reach; with more than two classes it always is.
"""

import itertools
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from holdfast.errors import SettingError, require
from holdfast.explainer import Explainer
from holdfast.models.base import Model
from holdfast.models.torch_model import TorchModel
from holdfast.nn.architecture import build, flat_layers
from holdfast.problem import Outcomes, Rows, SearchProblem

ROWS = 4096  # answered at once, which bounds memory


@dataclass(frozen=True, eq=False)
class Generator:
    """The recourse half of a network.

    Args:
        layers: from what it sees to a raw answer (n, d).
        features: which layers of the model's module give what it sees.
        model: the fingerprint of that model.
        told: how many classes it is told apart; 0 if it has to guess the other of two.
    """

    layers: nn.Sequential
    features: tuple[int, ...]
    model: str
    told: int = 0

    def check(self, model: Model) -> None:
        """Raise an error unless it makes numbers (n, d) out of what the model makes of rows (n, d)."""
        require(isinstance(model, TorchModel), "a recourse network belongs to a torch model")
        module, k = cast(TorchModel, model).module, len(model.classes)
        last = len(flat_layers(module)) - 1
        places = [i for i in self.features if type(i) is int and 0 <= i < last]
        require(
            0 < len(places) == len(self.features) and places == sorted({*places}),
            f"the recourse network looks at layers {list(self.features)}, the model has 0 to {last}",
        )
        require(self.told in ((0, 2) if k == 2 else (k,)), f"the recourse network is told {self.told} classes of {k}")
        require(
            all(bool(v.isfinite().all()) for v in self.layers.state_dict().values()),
            "the recourse network holds weights that are no numbers",
        )
        x = model.schema.probe.to(model.dtype)
        try:
            with model.eval_mode():
                shape = self(module, x, torch.zeros(len(x), dtype=torch.int64)).shape
        except RuntimeError as error:
            raise SettingError(f"the recourse network does not fit its model: {error}") from None
        require(shape == x.shape, f"the recourse network makes rows of {shape[1:]} columns, not {x.shape[1]}")

    def __call__(self, module: nn.Module, x: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Raw answers (n, d) to rows x (n, d); `wanted` (n,) are numbers of classes."""
        seen, h = list[Tensor](), x
        for i, layer in enumerate(flat_layers(module)[: self.features[-1] + 1]):
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
        path: the file that `CounterNet.save` wrote, read at first use. Not needed for `net.recourse_`, which has
            its network already.
    """

    title: ClassVar[str] = "one pass of the recourse network that was trained with the model"
    paper: ClassVar[str] = "Guo et al. 2023 (CounterNet, RoCourseNet)"
    when: ClassVar[str] = "the model is a CounterNet or RoCourseNet, which has learnt recourse together with prediction"
    cost: ClassVar[str] = "one pass of its generator per row"
    advice: ClassVar[str] = "ask another method about these rows, or train with a larger l2"

    path: str = ""

    @classmethod
    def of(cls, generator: Generator) -> "LearnedRecourse":
        """With the network at hand."""
        out = cls()
        out.generator_ = generator
        return out

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Read the network; the data has been learnt from already."""
        from holdfast.methods.amortized.counternet import load_generator

        require(bool(self.path), "LearnedRecourse answers with a trained network; give its file as path=...")
        self.generator_: Generator = load_generator(self.path, model)

    def check(self, model: Model) -> None:
        if self.path and not self.is_fitted:
            self.fit(model, torch.empty(0))
        require(self.is_fitted, "LearnedRecourse answers with a trained network; give its file as path=...")
        own = isinstance(model, TorchModel) and model.fingerprint() == self.generator_.model
        require(own, "this recourse network was trained with another model; ask it about its own")

    def search(self, problem: SearchProblem) -> Tensor:
        answer = torch.empty_like(problem.x)
        for _ in problem.steps(1):
            for at in range(0, len(problem), ROWS):
                part = slice(at, at + ROWS)
                answer[part] = self._answers(problem, part)
        return answer

    def _answers(self, problem: SearchProblem, part: slice) -> Tensor:
        """The answers to some of the rows."""
        model, x, reach = cast(TorchModel, problem.model), problem.x[part], problem.feasible[part]
        wanted = None
        if self.generator_.told:  # of two classes the other is known without asking the model
            goal = problem.goal[part]
            wanted = goal.wanted(x.new_zeros(len(x), 2) if goal.k == 2 else model(x))
        raw = self.generator_(model.module, x, wanted)
        # The largest level is the same before and after a softmax; only how far a row moves is not.
        return reach.project(reach.encoding.softmax(raw) if reach.encoding.max_changes else raw)


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
