"""Answers from a network that was trained together with the model: one pass, no search.

    z, p = what two hidden layers of the model make of x,     c = generator(z, p),     answer = N(c)

N takes, for each category, the largest level that the person may have, and like every method keeps
to bounds, fixed columns and rules.
"""

import os
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from holdfast._core.types import Outcomes, Rows
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods.amortized import _recourse_network
from holdfast.methods.amortized._recourse_network import RecourseNetwork
from holdfast.models.base import Model
from holdfast.models.torch_model import TorchModel
from holdfast.problem import SearchProblem

ROWS = 4096  # answered at once, which bounds memory


@dataclass(eq=False, repr=False)
class LearnedRecourse(Explainer):
    """Answers from the recourse network that was trained with the model (`CounterNet`,
    `RoCourseNet`).

    Args:
        path: the file that `CounterNet.save` wrote, read at first use. Not needed for
            `net.recourse_`, which has its network already.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> net = hf.CounterNet(encoder=(10,), epochs=3).fit(data.X, data.y, data.schema)
    >>> method = net.recourse_
    >>> len(method.explain(net.model_, data.X[:3], "yes"))
    3
    """

    title = "one pass of the recourse network that was trained with the model"
    paper = "Guo et al. 2023 (CounterNet, RoCourseNet)"
    when = (
        "the model is a CounterNet or RoCourseNet, which has learnt recourse together with "
        "prediction"
    )
    cost = "one pass of its generator per row"
    advice = "ask another method about these rows, or train with a larger l2"

    path: str = ""

    @classmethod
    def of(cls, generator: RecourseNetwork) -> "LearnedRecourse":
        """The method with a network at hand."""
        out = cls()
        out.generator_ = generator
        return out

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Read the network, which has learnt from the data already."""
        if not bool(self.path):
            raise SettingError(
                "LearnedRecourse answers with a trained network; give its file as path=..."
            )
        self.read(self.path, model)

    def read(self, path: str | os.PathLike[str], model: Model) -> None:
        """Take the network from a model's file, which may already be open."""
        self.path = str(path)
        self.generator_: RecourseNetwork = _recourse_network.load(path, model)

    def check(self, model: Model) -> None:
        if self.path and not self.is_fitted:
            self.fit(model, torch.empty(0))
        if not self.is_fitted:
            raise SettingError(
                "LearnedRecourse answers with a trained network; give its file as path=..."
            )
        if not isinstance(model, TorchModel) or model.fingerprint() != self.generator_.model:
            raise SettingError(
                "this recourse network was trained with another model; ask it about its own"
            )

    def search(self, problem: SearchProblem) -> Tensor:
        answer = torch.empty_like(problem.x)
        model = cast(TorchModel, problem.model)
        k = problem.goal.k
        encoding = problem.feasible.encoding
        for part in (slice(first, first + ROWS) for first in range(0, len(problem), ROWS)):
            x = problem.x[part]
            wanted = None
            # with two classes the other one is known without asking the model
            if self.generator_.target_columns:
                wanted = problem.goal[part].wanted(x.new_zeros(len(x), 2) if k == 2 else model(x))
            raw = self.generator_(model.module, x, wanted)
            # The largest level is the same before and after a softmax; only the distance a row
            # moves differs.
            answer[part] = problem.feasible[part].project(
                encoding.softmax(raw) if encoding.max_changes else raw
            )
        problem.budget.bar.step(1)
        return answer
