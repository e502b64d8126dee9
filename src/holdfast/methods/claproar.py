"""ClaPROAR: answers that also pay for what they cost the model that is trained on them.

The row that a person hands in becomes training data of the class t. Its loss there is a cost to
everybody else, as it moves the boundary; here it is the present model's cross-entropy. What is
shared with other methods, such as when a row stops, is in `_guided.py`.
"""

from dataclasses import dataclass

from torch import Tensor

from holdfast._core.checks import require_weight
from holdfast.methods._guided import GuidedMethod, GuidedWalk
from holdfast.models.base import Model


@dataclass(eq=False, repr=False, kw_only=True)
class ClaPROAR(GuidedMethod):
    """Gradient descent that also pays the loss that a model retrained on the answer would have
    there.

        minimise over z    CE(M(z), t) + lam |z - x|_1 + external * CE(M(z), t)

    Args:
        external: weight of that loss.
        lam, tau, lr, steps: see `GuidedMethod`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> len(hf.ClaPROAR().explain(model, data.X.head(20), "yes"))
    20

    Reference:
        Altmeyer, Angela, Buszydlik, Dobiczek, van Deursen and Liem 2023, "Endogenous
        Macrodynamics in Algorithmic Recourse".
    """

    title = "gradient descent that also pays the loss of the model's next training"
    paper = "Altmeyer et al. 2023 (ClaPROAR)"
    when = (
        "many people will follow the advice, the model will be trained on them, and there are no "
        "data"
    )

    lam: float = 0.1
    external: float = 0.5

    def check(self, model: Model) -> None:
        super().check(model)
        require_weight("external", self.external, "the loss")

    def by_scores(self, walk: GuidedWalk, scores: Tensor, s: Tensor, t: int) -> Tensor:
        return (1 + self.external) * (s - walk.own)
