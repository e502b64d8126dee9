"""ECCCo: answers that the model itself finds likely, by a low energy and, if asked for, a small
conformal set.

In the variant of "Counterfactual Training" (Altmeyer et al. 2025), which has no Omega; phi is in
`_energy.py`. What is shared with other methods, such as when a row stops, is in `_guided.py`.

Scores are the k columns that `Model` presents. A model with one logit f has the scores (0, f), so
class 0 has the constant energy 0, and towards it only the other terms act; a model of probabilities
has their logarithms.

q is the floor(alpha (m + 1))-th smallest S_y of the true class y among m calibration rows, so the
set of all y with S_y >= q holds the true class of a new row with probability at least 1 - alpha.
Omega counts where S_t >= 1/2, as in the authors' code: before that, a small set would be one
without t.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast._core.checks import require_positive, require_weight
from holdfast._core.types import Outcomes, Rows
from holdfast.errors import SettingError
from holdfast.methods._data import classes_of, encoded, scores_of
from holdfast.methods._energy import RIDGE, decay
from holdfast.methods._guided import GuidedMethod, GuidedWalk
from holdfast.models.base import Model


@dataclass(eq=False, repr=False, kw_only=True)
class ECCCo(GuidedMethod):
    """Gradient descent on cross-entropy, distance and the energy of the wanted class.

        minimise over z    CE(M(z), t) + lam |z - x|_1 + energy * phi_k * (E + 1e-3 E^2)
                           + conformal * Omega(z)

        E = -M(z)_t                     the energy of z as a member of class t, at step k = 1 .. T
        Omega = max(0, sum_y C_y - 1)   C_y = sigmoid((S_y - q) / temperature), a soft "y is in the
                                        conformal set"

    Args:
        energy: weight of the energy.
        conformal: weight of the smooth size of the conformal set; above 0 the method must be fitted
            on rows that the model was not trained on.
        alpha: how often the conformal set may miss the true class.
        temperature: how soft membership of the set is.
        lam, tau, lr, steps: see `GuidedMethod`.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons(n=200)
    >>> model = hf.train_network(data.X, data.y, data.schema, hidden=(8,), epochs=20)
    >>> typical = hf.ECCCo(energy=5).explain(model, data.X.head(20), "yes")
    >>> near = hf.ECCCo(energy=0).explain(model, data.X.head(20), "yes")
    >>> float(typical.cost("l1").mean()) > float(near.cost("l1").mean())
    True

    Reference:
        Altmeyer, Farmanbar, van Deursen and Liem 2024, "Faithful Model Explanations through
        Energy-Constrained Conformal Counterfactuals".

    Paper: altmeyer2025 Generator ECCo.
    """

    title = "gradient descent towards low energy of the wanted class"
    paper = "Altmeyer et al. 2024 (ECCCo); Altmeyer et al. 2025"
    when = "answers should be rows that the model itself finds typical of the wanted class"
    uses_data = True

    energy: float = 5.0
    conformal: float = 0.0
    alpha: float = 0.05
    temperature: float = 0.1

    def check(self, model: Model) -> None:
        super().check(model)
        require_weight("energy", self.energy, "unlikely rows")
        require_weight("conformal", self.conformal, "doubt")
        if not 0 < self.alpha < 1:
            raise SettingError(f"alpha must lie between 0 and 1, got {self.alpha}")
        require_positive("temperature", self.temperature)
        how = "call .fit(model, X, y) first (--data FILE in a terminal), or set conformal=0"
        if self.conformal != 0 and not self.is_fitted:
            raise SettingError(f"conformal={self.conformal:g} needs calibration rows; {how}")

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Calibrate the conformal set on rows with their true classes y (by default those the model
        predicts)."""
        if not 0 < self.alpha < 1:
            raise SettingError(f"alpha must lie between 0 and 1, got {self.alpha}")
        scores = scores_of(encoded(X, model, "ECCCo"), model)
        probability = (
            torch.softmax(scores, 1).gather(1, classes_of(scores, model, y)[:, None]).squeeze(1)
        )
        rank = int(self.alpha * (len(probability) + 1))
        # too few rows: a set can leave nothing out
        self.q_ = float(probability.kthvalue(rank).values) if rank else 0.0

    def by_scores(self, walk: GuidedWalk, scores: Tensor, s: Tensor, t: int) -> Tensor:
        w = float(decay(self.steps)[t]) * self.energy
        # Cross-entropy has S - e_t, the energy w (-1 + 2e-3 M_t) e_t.
        v = torch.sub(s, walk.own, alpha=1 + w).addcmul_(walk.own, scores, value=2 * RIDGE * w)
        if self.conformal:
            sure = s.gather(1, walk.label) >= 0.5
            v += torch.where(sure, self.conformal * set_size(s, self.q_, self.temperature)[1], 0.0)
        return v


def set_size(s: Tensor, q: float, temperature: float) -> tuple[Tensor, Tensor]:
    """Omega (n,) of probabilities s (n, k), and its derivative by the scores whose softmax they
    are."""
    u = (s - q) / temperature
    # sigmoid, by a kernel that works row by row
    c = torch.softmax(torch.stack([u, torch.zeros_like(u)], 2), 2)[..., 0]
    over = c.sum(1, keepdim=True) - 1
    g = s * c * (1 - c) / temperature
    return over.squeeze(1).clamp_min(0), torch.where(over > 0, g - s * g.sum(1, keepdim=True), 0.0)
