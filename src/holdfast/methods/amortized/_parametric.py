"""What parametric generators share as methods: trained once on data, then one pass for each
answer.

Generators learn from all rows, in both directions. What a network proposes is projected to what the
person can reach: the largest level of each category, bounds, fixed columns and rules, as with every
method.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.types import Outcomes, Rows
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods.amortized._generator_loop import (
    GeneratorKind,
    GeneratorStack,
    fit_generators,
    with_target,
)
from holdfast.methods.amortized._recourse_network import network_of
from holdfast.models.base import Model
from holdfast.problem import SearchProblem
from holdfast.retraining.frozen import encoded, net_of, numbered, with_logits


@dataclass(frozen=True, eq=False)
class TrainedGenerator:
    """A trained generator."""

    layers: tuple[nn.Sequential, ...]  # its networks
    target_columns: int  # how many columns tell them the class to reach
    model: str  # the fingerprint of the model it answers for

    @classmethod
    def of(cls, stack: GeneratorStack, i: int, model: str) -> "TrainedGenerator":
        """Generator i of a stack."""
        nets = (
            network_of(net, theta, i, dropout=0.0)
            for net, theta in zip(stack.nets, stack.thetas, strict=True)
        )
        return cls(tuple(nets), stack.kind.target_columns(stack.classes), model)

    def with_target(self, x: Tensor, t: Tensor) -> Tensor:
        return with_target(x, t, self.target_columns)


@dataclass(eq=False, repr=False)
class ParametricMethod(Explainer, GeneratorKind):
    """A method that answers by a network trained for one model."""

    cost = "one pass of a generator per row, after training it for epochs passes over the data"
    needs_data = True

    @abstractmethod
    def propose(self, problem: SearchProblem, t: Tensor) -> Tensor:
        """(n, d) answers before they are projected; t (n, 1) are the classes to reach."""

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Train on rows of the data, against the model as it is."""
        if self.shift is not None:
            raise SettingError(
                f"{type(self).__name__} with a shift also needs the rows' outcomes; call "
                ".fit_against(model, X, y), or hf.robustify(...)"
            )
        self.fit_against(model, X)

    def fit_against(
        self, model: Model, X: Rows, y: Outcomes | None = None, *, progress: bool = False
    ) -> Self:
        """Train on rows of the data, against what the setting `shift` makes of `model` in each
        batch.

        Args:
            model: a torch module that returns logits; it stays as it is.
            X: rows of the table, or their encoding.
            y: the outcomes of the rows, which the shifted model is trained on; not needed if
                `shift` is None.
            progress: show a bar on stderr.
        """
        name = type(self).__name__
        settings = self.checked()
        network = with_logits(model, name)
        x = encoded(model, X)
        labels = None if y is None else numbered(X, y, model.classes)
        with Progress(progress, name) as bar:
            bar.total(1)
            net, theta = net_of(network.module, 1)
            stack = fit_generators(
                settings,
                net,
                theta,
                x,
                labels,
                model.schema.encoding(model.dtype),
                classes=len(model.classes),
                bar=bar,
            )
        self.generator_: TrainedGenerator = TrainedGenerator.of(stack, 0, model.fingerprint())
        return self

    def check(self, model: Model) -> None:
        if model.fingerprint() != self.generator_.model:
            raise SettingError(
                f"this {type(self).__name__} was trained for another model; fit one for this model"
            )

    def search(self, problem: SearchProblem) -> Tensor:
        answer = problem.x
        for _ in problem.steps(1):
            t = problem.goal.wanted(problem.model(problem.x))[:, None]
            answer = problem.feasible.project(self.propose(problem, t))
        return answer
