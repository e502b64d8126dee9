"""CF Model: one network from rows to answers, trained for validity and proximity.

    x_cf = N(g(x)),     minimise  l2 L(f(x_cf), t) + l3 mean (x_cf - x)^2

f is frozen, and t is the class to reach: the other one of two, else one drawn among the others. N
passes numbers on as they are, puts a softmax over the levels of each category and copies what may
not change from x. L = (f - t)^2, or cross-entropy of more than two classes.

Guo et al., "RoCourseNet", CIKM 2023 (a baseline there).
"""

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from holdfast._core.checks import require_number
from holdfast.errors import SettingError
from holdfast.methods.amortized._generator_loop import (
    GeneratorRun,
    GeneratorStack,
    GeneratorTraining,
    as_widths,
)
from holdfast.methods.amortized._parallel import Batches, dropout_masks
from holdfast.methods.amortized._parametric import ParametricMethod
from holdfast.nn.stack_derivatives import Weights, slope_and_curve
from holdfast.problem import SearchProblem
from holdfast.schema.encoding import Encoding


@dataclass(eq=False, repr=False)
class CFModel(ParametricMethod):
    """A network from rows to answers, trained for validity and proximity.

    Args:
        hidden: widths of its layers.
        dropout: share of units left out while training.
        l2, l3: weights of validity and of proximity.
        condition_on_target: tell the network the class to reach even with two classes; in the paper
            it has to find out.
        epochs, batch_size, lr: of the training, with Adam.
        reachable: train on answers as they would be handed in, with all bounds and rules; pays
            where these are tight.
        seed: weights, order and dropout come from it; the caller's generators stay as they are.
        shift, schedule: what it is trained against, see `holdfast.methods.amortized.robustify`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=5)
    >>> method = hf.CFModel(hidden=(10,), epochs=5).fit(model, data.X)
    >>> len(method.explain(model, data.X[:3], "yes"))
    3

    Paper: guo2023 Baseline CF Model.
    """

    title = "one pass of a network trained to answer for the model"
    paper = "Guo et al. 2023 (CF Model, RoCourseNet)"
    when = "many rows must be answered fast, for a network that stays as it is"
    advice = (
        "train with condition_on_target=True, reachable=True, a larger l2 or more epochs, or ask "
        "another method about "
        "these rows"
    )

    hidden: tuple[int, ...] = (200, 10, 10)
    dropout: float = 0.3
    l2: float = 0.2
    l3: float = 0.1
    condition_on_target: bool = False

    def checked(self) -> Self:
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        require_number("l2", self.l2)
        require_number("l3", self.l3)
        return replace(super().checked(), hidden=as_widths("hidden", self.hidden))

    def target_columns(self, classes: int) -> int:
        return classes if classes > 2 else int(self.condition_on_target)

    def sizes(self, columns: int, classes: int) -> list[tuple[int, ...]]:
        return [(columns + self.target_columns(classes), *self.hidden, columns)]

    def answers(
        self, stack: GeneratorStack, x: Tensor, t: Tensor, encoding: Encoding, noise: Tensor | None
    ) -> Tensor:
        return encoding.softmax(stack.nets[0].scores(stack.thetas[0], stack.with_target(x, t)))

    def training(self, run: GeneratorRun, batches: Batches) -> GeneratorTraining:
        return DirectTraining(self, run, batches)

    def propose(self, problem: SearchProblem, t: Tensor) -> Tensor:
        (network,) = self.generator_.layers
        return problem.feasible.encoding.softmax(network(self.generator_.with_target(problem.x, t)))


class DirectTraining(GeneratorTraining):
    """One run of the training, with gradients by hand."""

    def __init__(self, kind: CFModel, run: GeneratorRun, batches: Batches) -> None:
        super().__init__(kind, run, batches)
        self.kind = kind
        self.net = run.stack.nets[0]

    def begin(self, thetas: list[Weights], x: Tensor, t: Tensor, draw: int) -> int:
        self.masks = dropout_masks(self.net, self.kind.dropout, x, self.random, draw)
        return 1

    def answer(self, thetas: list[Weights], x: Tensor, t: Tensor, block: int) -> Tensor:
        self.h, c = self.net.forward(
            thetas[0], self.stack.with_target(x, t), self.masks, "generate"
        )
        self.x_cf = self.keep_fixed(self.encoding.softmax(c), x)
        return self.x_cf

    def validity_slope(self, z: Tensor, t: Tensor, w: Tensor) -> Tensor:
        return slope_and_curve(z, t, self.kind.l2 * w)[0]

    def add_distance_slope_(self, by_cf: Tensor, x: Tensor, x_cf: Tensor, w: Tensor) -> None:
        by_cf.addcmul_(x_cf - x, w, value=2 * self.kind.l3 / x.shape[2])

    def learn(self, thetas: list[Weights], grads: list[Weights], by_cf: Tensor, block: int) -> None:
        by_c = self.encoding.softmax_pull(self.x_cf, by_cf)
        self.net.backward(thetas[0], self.h, by_c, grads[0], self.masks, "generate")
