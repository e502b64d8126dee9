"""Answers of every method on every hardened model, and what asks the models again: survival,
noise, crossings and bounds."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.auditing.verdicts import verdicts
from holdfast.counterfactuals import Counterfactuals
from holdfast.distances import distance_of, l2
from holdfast.errors import SettingError
from holdfast.evaluation.bounds import step_length, theorem2
from holdfast.evaluation.cross_validity import CrossValidity, cross_validity
from holdfast.explainer import Explainer
from holdfast.methods.descent import Descent
from holdfast.models.base import Model
from holdfast.target import Status
from holdfast.training.adversarial import AdversarialModels

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class HardenedAnswers:
    """What every method found on every model."""

    hardened: AdversarialModels
    methods: dict[str, Explainer]
    answers: dict[str, list[list[Counterfactuals]]]  # method -> epsilon -> seed

    @property
    def epsilon(self) -> tuple[float, ...]:
        """Radii of the attacks that models were trained against, least first."""
        return self.hardened.epsilon

    def rows(self) -> pd.DataFrame:
        """One line per method, epsilon, seed and row asked about: found or not, and the
        costs."""
        parts = list[pd.DataFrame]()
        for name, by_epsilon in self.answers.items():
            for e, by_seed in zip(self.epsilon, by_epsilon, strict=True):
                for s, cfs in enumerate(by_seed):
                    refused = cfs.status_codes != Status.ALREADY_MET
                    tried = l2.value((cfs.x_cf - cfs.x).double()).numpy()
                    columns = {
                        "method": name,
                        "epsilon": e,
                        "seed": s,
                        "row": cfs.source,
                        "found": cfs.found,
                    }
                    part = pd.DataFrame(
                        columns | {"cost": cfs.cost("l2").to_numpy(), "cost of attempts": tried}
                    )
                    parts.append(part.loc[np.flatnonzero(refused)])
        return pd.concat(parts, ignore_index=True)

    def survives(self, method: str) -> Array:
        """(epsilons,) share of the answers of each network that those of the same epsilon and other
        seeds accept."""
        if self.hardened.seeds < 2:
            return np.full(len(self.epsilon), np.nan)

        def accepted(i: int, s: int, cfs: Counterfactuals) -> Array:
            bank = replace(self.hardened.bank, groups=self.hardened.bank.groups[i : i + 1])
            return np.delete(
                verdicts(cfs, bank, Progress(False, ""))[:, cfs.found], s, axis=0
            ).mean(0)

        return self._mean_over_answers(method, accepted)

    def cross_validity(self, method: str) -> CrossValidity:
        """Answers of each epsilon on the models of each epsilon, all of the first seed; without the
        epsilons whose model refuses nobody."""
        first = [by_seed[0] for by_seed in self._answers(method)]
        some = [i for i, cfs in enumerate(first) if (cfs.status_codes != Status.ALREADY_MET).any()]
        if not some:
            raise SettingError(
                "no model refuses any of the rows, so there are no answers to compare"
            )
        bank = self.hardened.only(range(1))
        bank = replace(bank, groups=tuple(bank.groups[i] for i in some))
        return cross_validity(
            {AdversarialModels.name(self.epsilon[i]): first[i] for i in some}, bank
        )

    def under_noise(
        self, method: str, *, sd: float = 0.1, draws: int = 1000, seed: int = 0
    ) -> Array:
        """(epsilons,) share of noisy copies of the answers that their own model refuses.

        Copies are encoded rows plus normal numbers of this standard deviation; Pawelczyk et al.
        2023 call it the recourse invalidation rate.
        """
        return self._mean_over_answers(
            method,
            lambda i, s, cfs: invalidated(
                self.hardened.model(self.epsilon[i], s), cfs, sd, draws, seed
            ),
        )

    def _mean_over_answers(
        self, method: str, shares: Callable[[int, int, Counterfactuals], Array]
    ) -> Array:
        """(epsilons,) means of the shares (answers,) of epsilon i and seed s."""
        parts = [
            [shares(i, s, cfs) for s, cfs in enumerate(by)]
            for i, by in enumerate(self._answers(method))
        ]
        every = [np.concatenate(part) for part in parts]
        return np.array([values.mean() if len(values) else np.nan for values in every])

    def _answers(self, method: str) -> list[list[Counterfactuals]]:
        if method not in self.answers:
            raise SettingError(
                f"no method {method!r} in this study; there are {list(self.answers)}"
            )
        return self.answers[method]

    def bounds(self) -> pd.DataFrame:
        """How much longer SCFE's steps are than on the plain model, and what bounds that; see
        `Tradeoff.bounds`."""
        parts = list[pd.DataFrame]()
        for name, method in self.methods.items():
            if (
                not isinstance(method, Descent)
                or method.loss != "score"
                or distance_of(method.norm) != l2
            ):
                continue
            for s in range(self.hardened.seeds):
                plain = _slopes(self.hardened.model(self.epsilon[0], s), self.answers[name][0][s])
                for i, e in enumerate(self.epsilon[1:], 1):
                    hard = _slopes(self.hardened.model(e, s), self.answers[name][i][s])
                    both = torch.tensor(np.intersect1d(plain["row"], hard["row"]))
                    # Rows that only one of the two models refuses have no step on the other.
                    on_plain = torch.isin(plain["row"], both)
                    on_hard = torch.isin(hard["row"], both)
                    a = plain["length"][on_plain]
                    b = hard["length"][on_hard]
                    m = method.score - plain["gap"][on_plain]
                    m_r = method.score - hard["gap"][on_hard]
                    apart = step_length(b, m_r, method.lam) - step_length(a, m, method.lam)
                    true = theorem2(a, b, m, m_r, method.lam, form="corrected")
                    printed = theorem2(a, b, m, m_r, method.lam, form="paper")
                    columns = {
                        "method": name,
                        "epsilon": e,
                        "seed": s,
                        "row": both,
                        "difference": apart,
                    }
                    columns |= {"bound": true.value, "violated": true.violations(apart)}
                    columns |= {"paper": printed.value, "paper violated": printed.violations(apart)}
                    parts.append(pd.DataFrame(columns))
        if not parts:
            raise SettingError("no method of this study has a bound; add hf.Descent.scfe()")
        return pd.concat(parts, ignore_index=True)


@dataclass(frozen=True, eq=False)
class SavedAnswers:
    """What a file keeps of the answers of a study: costs row by row, and survival."""

    lines: pd.DataFrame  # as `HardenedAnswers.rows` gives them
    survival: dict[str, Array]  # method -> (epsilons,)

    def rows(self) -> pd.DataFrame:
        """One line per method, epsilon, seed and row asked about."""
        return self.lines.copy()

    def survives(self, method: str) -> Array:
        """(epsilons,) share of the answers that networks of other seeds accept."""
        if method not in self.survival:
            raise SettingError(f"no method {method!r} in this study; there are {[*self.survival]}")
        return self.survival[method]


def _slopes(model: Model, cfs: Counterfactuals) -> dict[str, Tensor]:
    """Of the rows that the model refuses: their numbers, the gap to the wanted class, and its
    gradient's length."""
    rows = torch.tensor(np.flatnonzero(cfs.status_codes != Status.ALREADY_MET))
    goal = cfs.goal.by_class()[rows]
    with model.eval_mode():
        scores, pull = model.vjp(cfs.x[rows])
        gap, slope = goal.gap_and_slope(scores)
        length = l2.value(pull(slope).double())
    return {"row": rows, "gap": gap.double(), "length": length}


def invalidated(model: Model, cfs: Counterfactuals, sd: float, draws: int, seed: int) -> Array:
    """(answers,) share of noisy copies of each answer that the model refuses."""
    if not (sd > 0 and draws >= 1):
        raise SettingError(f"need sd > 0 and at least one draw, got {sd} and {draws}")
    rows = torch.tensor(np.flatnonzero(cfs.found))
    goal = cfs.goal.by_class()
    x = cfs.x_cf
    d = cfs.x_cf.shape[1]
    random = RowRandom.of(seed, x)
    out = list[Tensor]()
    with model.eval_mode():
        for part in chunks(rows, rows_per_chunk(d * draws)):
            noisy = x[part, None] + sd * random[part].normal(draws, d, dtype=x.dtype)
            answer = part.repeat_interleave(draws)
            out.append(
                1 - goal[answer].met(model(noisy.flatten(0, 1))).double().view(-1, draws).mean(1)
            )
    return torch.cat(out).numpy() if out else np.zeros(0)
