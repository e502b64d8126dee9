"""The same questions to several models, many times over, and what their counterfactuals are worth:
the protocol behind `compare`. The paper calls a repeat a round.

A repeat takes a pair of classes, every pair before any comes again, and for each model draws rows,
with replacement, to which it gives the first class; the second is wanted. The same random numbers
choose the rows of all models, and the data rows that counterfactuals are compared with, so in a
repeat only the models differ. An answer depends only on the row, the wanted class and the seed:
each question is asked once, however often repeats draw it, and all repeats are one call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.rows import limited_threads
from holdfast.distances import l1
from holdfast.errors import SettingError
from holdfast.evaluation.plausibility import MOST_IN_SET, implausibility, mmd, redundancy
from holdfast.explainer import Explainer
from holdfast.models.base import Model

Array = np.ndarray[Any, Any]
METRICS = ("validity", "implausibility", "mmd", "cost", "redundancy")


@dataclass(frozen=True, eq=False)
class Repeats:
    """J repeats: which rows each model is asked about, and what is wanted of them.

    Args:
        factual, target: (J,) numbers of the classes that rows have, and should get.
        rows: model -> (J, r) numbers of the rows.
        near: class -> for each repeat that wants it, at most 100 of its data rows (repeats, m, d).
        data: class -> its data rows (m, d).
    """

    factual: Array
    target: Array
    rows: dict[str, Array]
    near: dict[int, Tensor]
    data: dict[int, Tensor]

    @classmethod
    def draw(
        cls,
        predicted: Mapping[str, Array],
        k: int,
        x: Tensor,
        labels: Tensor,
        repeats: int,
        rows: int,
        rng: np.random.Generator,
    ) -> "Repeats":
        """Draw J repeats of this many rows: `predicted` says which of k classes (n,) each model
        gives to the encoded rows x (n, d), whose true classes are `labels` (n,)."""
        data = {c: x[labels == c] for c in range(k) if bool((labels == c).any())}
        # A class that one of the models never gives cannot be left, and one with a single row has
        # no spread.
        given = [c for c in range(k) if all((classes == c).any() for classes in predicted.values())]
        pairs = [(a, b) for a in given for b, own in data.items() if a != b and len(own) > 1]
        why = (
            f"of {len(data)} classes the models all give {given} to some rows, and no other class "
            "has two rows"
        )
        if not pairs:
            raise SettingError(f"nothing to compare: {why}; pass more rows")
        # Every pair before any comes again: some classes are easier to reach than others, and
        # chance is noise in the means.
        turns = [rng.permutation(len(pairs)) for _ in range(-(-repeats // len(pairs)))]
        factual, target = np.array(pairs)[np.concatenate(turns)[:repeats]].T
        near = dict[int, Tensor]()
        for c in np.unique(target).tolist():
            chance = rng.random((int((target == c).sum()), len(data[c])))
            near[c] = data[c][torch.tensor(chance.argsort(1)[:, :MOST_IN_SET])]
        places = rng.random((repeats, rows))
        drawn = {name: np.empty((repeats, rows), dtype=np.int64) for name in predicted}
        for name, classes in predicted.items():
            for c in given:
                here = factual == c
                own = np.flatnonzero(classes == c)
                drawn[name][here] = own[(places[here] * len(own)).astype(np.int64)]
        return cls(factual, target, drawn, near, data)

    def measure(
        self, name: str, model: Model, method: Explainer, X: pd.DataFrame, seed: int
    ) -> pd.DataFrame:
        """One line per repeat: how many counterfactuals of this model, which may have another
        schema than the repeats know it by, are valid, and means over those.

        Paper: altmeyer2025 Metric cost.
        """
        k = len(model.classes)
        keys, question = np.unique(self.rows[name] * k + self.target[:, None], return_inverse=True)
        # (J, rows) of q questions, (q,) classes
        question = question.reshape(self.rows[name].shape)
        target = keys % k
        wanted = [model.classes[c] for c in target]
        cfs = method.explain(model, X.iloc[keys // k], wanted, seed=seed)
        x = cfs.x.double()
        z = cfs.x_cf.double()
        away = np.empty(len(keys))
        for c in np.unique(target):
            away[target == c] = implausibility(
                z[torch.tensor(target == c)], self.data[int(c)]
            ).numpy()
        valid = cfs.found[question]  # (J, rows)
        values = {
            "validity": valid.mean(1),
            "implausibility": mean_where(away[question], valid),
            "mmd": self._mmd(z, question, valid),
            "cost": mean_where(l1.value(z - x).numpy()[question], valid),
            "redundancy": mean_where(redundancy(x, z).numpy()[question], valid),
        }
        classes = np.array(model.classes, dtype=object)
        about = {
            "round": np.arange(len(question)),
            "from": classes[self.factual],
            "to": classes[self.target],
        }
        return pd.DataFrame(about | values)

    def _mmd(self, z: Tensor, question: Array, valid: Array) -> Array:
        """(J,) discrepancy between data and valid counterfactuals of each repeat: rows `question`
        (J, rows) of z."""
        # Rows come in random order, so the first of the valid ones are a sample of them.
        first = np.argsort(~valid, axis=1, kind="stable")[:, :MOST_IN_SET]
        rows = torch.tensor(np.take_along_axis(question, first, 1))
        kept = torch.tensor(np.take_along_axis(valid, first, 1))
        out = np.full(len(question), np.nan)
        with limited_threads(1):
            for c, near in self.near.items() if rows.shape[1] > 1 else ():
                here = torch.tensor(self.target == c)
                out[here.numpy()] = mmd(z[rows[here]], near, kept=kept[here], clamp=True).numpy()
        return out


def mean_where(values: Array, chosen: Array) -> Array:
    """(J, rows) -> (J,) means over what is chosen; missing if nothing is."""
    count = chosen.sum(1)
    return np.where(count > 0, np.where(chosen, values, 0.0).sum(1) / np.maximum(count, 1), np.nan)
