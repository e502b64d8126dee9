"""Parametric generators for a model that is there already: trained once on data, then one pass for each answer.

    e = hf.CFModel().fit(model, X);                          cfs = e.explain(model, X_denied)
    e = hf.robustify(hf.CFModel(), model, X, y)        the same, against the worst small shift of the data

`amortized._generator_loop` has networks, losses and training. Both learn from all rows, in both directions. What a
network proposes is projected to what the person can reach: the largest level of each category, bounds, fixed columns
and rules, as with every method.

The protocol of `robustify`: settings `shift` and `schedule`, and `fit_against(model, X, y)`.
"""

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast.errors import require
from holdfast.explainer import Explainer
from holdfast.methods.amortized._generator_loop import (
    Direct,
    GeneratorStack,
    Kind,
    fit_generators,
    with_wish,
)
from holdfast.methods.amortized._parallel import Schedule
from holdfast.methods.amortized.learned_recourse import filled, network
from holdfast.methods.amortized.virtual_shift import Shift
from holdfast.models.base import Model
from holdfast.nn.stack_derivatives import SLOPE
from holdfast.problem import Outcomes, Rows, SearchProblem
from holdfast.retraining.frozen import encoded, net_of, numbered, with_logits


@dataclass(frozen=True, eq=False)
class Networks:
    """A trained generator.

    Args:
        layers: its networks.
        told: how many columns tell them the class to reach.
        model: the fingerprint of the model it answers for.
    """

    layers: tuple[nn.Sequential, ...]
    told: int
    model: str

    @classmethod
    def of(cls, stack: GeneratorStack, i: int, model: str) -> "Networks":
        """Generator i of a stack."""
        one, made = torch.tensor([i]), list[nn.Sequential]()
        for net, theta in zip(stack.nets, stack.thetas, strict=True):
            parts = [(w[one], b[one]) for w, b in net.real(theta)]
            made.append(filled(network(net.sizes, SLOPE, 0.0).to(theta.flat.dtype), parts))
        return cls(tuple(made), stack.kind.told(stack.classes), model)


@dataclass(eq=False, repr=False)
class Parametric(Explainer):
    """What parametric generators have in common."""

    needs_data: ClassVar[bool] = True

    epochs: int = 50
    batch_size: int = 128
    lr: float = 0.003
    reachable: bool = False
    seed: int = 0
    shift: Shift | None = None
    schedule: Schedule = "linear"

    @abstractmethod
    def kind(self) -> Kind:
        """The settings of the training."""

    @abstractmethod
    def propose(self, problem: SearchProblem, t: Tensor) -> Tensor:
        """(n, d) answers before they are projected; t (n, 1) are the classes to reach."""

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Train on rows of the data, against the model as it is."""
        require(
            self.shift is None,
            f"{type(self).__name__} with a shift also needs the rows' outcomes; call .fit_against(model, X, y), or "
            "hf.robustify(...)",
        )
        self.fit_against(model, X)

    def fit_against(self, model: Model, X: Rows, y: Outcomes | None = None, *, progress: bool = False) -> Self:
        """Train on rows of the data, against the model that the setting `shift` makes of `model` in each batch.

        Args:
            X: rows of the table, or their encoding.
            model: a torch module that returns logits; it stays as it is.
            y: the outcomes of the rows, which the shifted model is trained on; not needed where `shift` is None.
            progress: show a bar on stderr.
        """
        name, kind = type(self).__name__, self.kind()
        own = with_logits(model, name)
        x, labels = encoded(model, X), None if y is None else numbered(X, y, model.classes)
        with Progress(progress, name) as bar:
            bar.total(1)
            net, theta = net_of(own.module, 1)
            stack = fit_generators(
                kind, net, theta, x, labels, model.schema.encoding(model.dtype), classes=len(model.classes),
                seeds=(self.seed,), shift=self.shift, schedule=self.schedule, bar=bar,
            )  # fmt: skip
        self.networks_: Networks = Networks.of(stack, 0, model.fingerprint())
        return self

    def check(self, model: Model) -> None:
        require(
            model.fingerprint() == self.networks_.model,
            f"this {type(self).__name__} was trained for another model; fit one for this model",
        )

    def search(self, problem: SearchProblem) -> Tensor:
        answer = problem.x
        for _ in problem.steps(1):
            t = problem.goal.wanted(problem.model(problem.x))[:, None]
            answer = problem.feasible.project(self.propose(problem, t))
        return answer

    def _settings(self, kind: type[Kind]) -> dict[str, Any]:
        """The settings that are also those of the training."""
        given = {f.name: getattr(self, f.name) for f in fields(kind) if hasattr(self, f.name)}
        return given | {"hidden": tuple(given["hidden"])} if hasattr(given["hidden"], "__iter__") else given


@dataclass(eq=False, repr=False)
class CFModel(Parametric):
    """A network from rows to answers, trained for validity and proximity.

    Args:
        hidden: widths of its layers.
        dropout: share of units left out while training.
        l2, l3: weights of validity and of proximity.
        condition_on_target: tell the network the class to reach also with two classes; in the paper it has to find out.
        epochs, batch_size, lr: of the training, with Adam.
        reachable: train on answers as they would be handed in, with all bounds and rules; pays where these are tight.
        seed: weights, order and dropout come from it; the caller's generators stay as they are.
        shift, schedule: what it is trained against, see `holdfast.methods.amortized.robustify`.
    """

    title: ClassVar[str] = "one pass of a network trained to answer for the model"
    paper: ClassVar[str] = "Guo et al. 2023 (CF Model, RoCourseNet)"
    when: ClassVar[str] = "many rows must be answered fast, for a network that stays as it is"
    cost: ClassVar[str] = "one pass of a generator per row, after training it for epochs passes over the data"
    advice: ClassVar[str] = (
        "train with tell=True, reachable=True, a larger l2 or more epochs, or ask another method about these rows"
    )

    hidden: tuple[int, ...] = (200, 10, 10)
    dropout: float = 0.3
    l2: float = 0.2
    l3: float = 0.1
    condition_on_target: bool = False

    def kind(self) -> Direct:
        return Direct(**self._settings(Direct))

    def propose(self, problem: SearchProblem, t: Tensor) -> Tensor:
        (generator,), told = self.networks_.layers, self.networks_.told
        return problem.feasible.encoding.softmax(generator(with_wish(problem.x, t, told)))
