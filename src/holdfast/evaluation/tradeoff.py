"""What hardening a model costs in recourse, and where to stop.

The same methods, with the same budget and the same random numbers, look for recourse on models
trained against attacks of growing size epsilon:

    validity      of the rows that the model of epsilon refuses, the share with an answer
    cost          mean |x' - x|_2 over these answers; `cost of attempts` over all that was tried
    extra cost    mean of |x'_e - x|_2 - |x'_0 - x|_2 over the rows that both the plain model (the least epsilon) and
                  that of epsilon refuse and answer
    accuracy      on the test rows, as they are and attacked by PGD: all models with the same radius
    survives      share of the answers that networks of the same epsilon but another seed accept as well

Krishna, Agarwal and Lakkaraju, "On the Trade-offs between Adversarial Robustness and Actionable
Explanations". A budget without end would find an answer for nearly every row, so validity speaks of
the budget that the methods are given.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import chunks, rows_per_chunk
from holdfast.auditing.verdicts import verdicts
from holdfast.counterfactuals import Counterfactuals
from holdfast.distances import distance_of, l2
from holdfast.errors import SettingError
from holdfast.evaluation.attacks import attacked_accuracy
from holdfast.evaluation.bounds import Form, step_length, theorem2
from holdfast.evaluation.cross_validity import CrossValidity, cross_validity
from holdfast.explainer import Explainer
from holdfast.methods.descent import Descent
from holdfast.models.base import Model
from holdfast.target import Label, Status
from holdfast.training.adversarial import AdversarialModels

Array = np.ndarray[Any, Any]
ATTACK = 0.1  # radius of the attack that all models are measured with
FORMS: tuple[Form, Form] = ("corrected", "paper")


def tradeoff(
    hardened: AdversarialModels,
    X: pd.DataFrame,
    methods: Sequence[Explainer] | Mapping[str, Explainer],
    *,
    target: Label | None = None,
    test: tuple[pd.DataFrame, ArrayLike] | None = None,
    attack: float = ATTACK,
    seed: int = 0,
    progress: bool = False,
) -> "Tradeoff":
    """Look for recourse on every model, with every method.

    Args:
        hardened: models by epsilon, see `holdfast.train_adversarial`.
        X: rows to ask about. Of each model, those are asked that it refuses.
        methods: explainers, by name or just a list. Those that learn from data are fitted on the
            training rows.
        target: the class that is wanted; None: for each row the one that the plain model does not
            give it.
        test: rows and outcomes to measure accuracy on; None takes the training rows, which
            flatters.
        attack: radius of the PGD attack for the attacked accuracy.
        seed: random numbers of the methods: the same for a row on every model.
        progress: show a bar on stderr.

    Returns:
        A `Tradeoff`: validity, cost and accuracies by epsilon, bounds, and where to stop.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=[], epochs=5)
    >>> hardened = hf.train_adversarial(recipe, data.X, data.y, data.schema, epsilon=[0.0, 0.2])
    >>> study = hf.tradeoff(hardened, data.X.head(20), [hf.Descent.scfe()], target="yes")
    >>> study.table()["epsilon"].tolist()
    [0.0, 0.2]
    """
    if not isinstance(hardened, AdversarialModels):
        raise SettingError(
            f"tradeoff takes what hf.train_adversarial(...) returns, got {type(hardened).__name__}"
        )
    named = _named(methods)
    targets = hardened.wanted_classes(X, target)
    found: dict[str, list[list[Counterfactuals]]] = {}
    with Progress(progress, "recourse") as bar:
        bar.total(len(named) * len(hardened.bank))
        for name, method in named.items():
            found[name] = [[] for _ in hardened.epsilon]
            for i, s in itertools.product(range(len(hardened.epsilon)), range(hardened.seeds)):
                model = hardened.model(hardened.epsilon[i], s)
                method = _fitted(method, hardened.X, model)
                found[name][i].append(method.explain(model, X, targets[s], seed=seed))
                bar.step(1)
    rows, y = (hardened.X, hardened.y) if test is None else test
    shape = len(hardened.epsilon), hardened.seeds
    right = attacked_accuracy(hardened.bank, rows, y, epsilon=0.0).reshape(shape)
    kept = attacked_accuracy(hardened.bank, rows, y, epsilon=attack).reshape(shape)
    return Tradeoff(
        hardened, named, found, right, kept, attack, "training" if test is None else "test"
    )


def _named(methods: Any) -> dict[str, Explainer]:
    if isinstance(methods, Explainer):
        methods = [methods]
    if isinstance(methods, Mapping):
        named = {str(name): method for name, method in cast(Mapping[Any, Any], methods).items()}
    else:
        named = dict[str, Any]()
        for method in cast(Sequence[Any], methods):
            name = type(method).__name__
            i = 2
            while name in named:
                name = f"{type(method).__name__} {i}"
                i = i + 1
            named[name] = method
    if not named or not all(isinstance(method, Explainer) for method in named.values()):
        raise SettingError(f"methods must be explainers, like [hf.Descent.scfe()], got {methods!r}")
    return named


def _fitted(method: Explainer, X: pd.DataFrame, model: Model) -> Explainer:
    """Fitted for this model; an autoencoder knows nothing of the model and is trained once."""
    if not (method.needs_data or method.uses_data):
        return method
    fresh = type(method)(**method.get_params(deep=False))
    net = getattr(method, "autoencoder_", None)
    if net is not None:
        fresh.set_params(autoencoder=net)
    return fresh.fit(model, X)


@dataclass(frozen=True, eq=False, repr=False)
class Tradeoff:
    """Answers of every method on every model, and what follows from them; `hf.tradeoff` makes it.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=[], epochs=5)
    >>> hardened = hf.train_adversarial(recipe, data.X, data.y, data.schema, epsilon=[0.0, 0.2])
    >>> study = hf.tradeoff(hardened, data.X.head(20), {"nearest": hf.NearestNeighbor()}, target="yes")
    >>> study.recommended() in study.epsilon
    True
    """

    hardened: AdversarialModels
    methods: dict[str, Explainer]
    answers: dict[str, list[list[Counterfactuals]]]  # method -> epsilon -> seed
    accuracy: Array  # (epsilons, seeds)
    attacked: Array  # (epsilons, seeds), all with the radius
    attack: float
    measured_on: str  # "test" or "training" rows

    @property
    def epsilon(self) -> tuple[float, ...]:
        """Radii of the attacks that models were trained against, least first."""
        return self.hardened.epsilon

    # ---- figures

    def rows(self) -> pd.DataFrame:
        """One line per method, epsilon, seed and row that was asked about: found or not, and the
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

    def table(self) -> pd.DataFrame:
        """One line per method and epsilon: means over rows and seeds."""
        rows = self.rows()
        lines = list[dict[str, Any]]()
        for name in self.methods:
            plain = rows[(rows["method"] == name) & (rows["epsilon"] == self.epsilon[0])]
            survival = self.survives(name)
            for i, e in enumerate(self.epsilon):
                here = rows[(rows["method"] == name) & (rows["epsilon"] == e)]
                both = here.merge(plain, on=["seed", "row"], suffixes=("", "_0"))
                more = (both["cost"] - both["cost_0"]).dropna()
                line = {
                    "method": name,
                    "epsilon": e,
                    "asked": len(here),
                    "validity": here["found"].mean(),
                }
                line |= {what: here[what].mean() for what in ("cost", "cost of attempts")}
                line |= {
                    "extra cost": more.mean(),
                    "extra cost sd": more.std(ddof=0),
                    "pairs": len(more),
                }
                line |= {"survives": survival[i], "accuracy": self.accuracy[i].mean()}
                lines.append(line | {"attacked accuracy": self.attacked[i].mean()})
        return pd.DataFrame(lines)

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
        """By how much SCFE's step is longer on each model than on the plain one, and what bounds
        that from both sides (Theorems 1 and 2, `holdfast.evaluation.bounds`): one line per row that
        both models refuse.

        For methods that minimise (gap - score)^2 + lam |step|^2, that is `Descent(loss="score",
        norm=2)`. Steps are those of the tangent plane at the row, which for a linear model is the
        model. Columns: `method`, `epsilon`, `seed`, `row`, `difference`, `bound`, `paper` (the
        bound as printed), `violated`, `paper violated`.
        """
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
                    keys = [(key, part) for key in ("length", "gap") for part in (plain, hard)]
                    a, b, m, m_r = (part[key][torch.isin(part["row"], both)] for key, part in keys)
                    m = method.score - m
                    m_r = method.score - m_r
                    apart = step_length(b, m_r, method.lam) - step_length(a, m, method.lam)
                    true, printed = (
                        theorem2(a, b, m, m_r, method.lam, form=form) for form in FORMS
                    )
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

    # ---- the answer

    def recommended(
        self, *, validity: float = 0.05, cost: float = 0.25, accuracy: float = 0.02
    ) -> float:
        """Where to stop: the epsilon with the best attacked accuracy among those that cost little
        enough.

        Args:
            validity: by how much validity, averaged over the methods, may fall.
            cost: by how much the cost of a row that is answered by both models may grow, as a share
                of what it was.
            accuracy: by how much accuracy may fall.
        """
        table = (
            self.table()
            .groupby("epsilon", sort=True)[["validity", "cost", "extra cost", "accuracy"]]
            .mean()
        )
        plain = table.iloc[0]
        ok = (table["validity"] >= plain["validity"] - validity) & (
            table["accuracy"] >= plain["accuracy"] - accuracy
        )
        ok &= table["extra cost"].fillna(np.inf) <= cost * plain["cost"]
        ok.iloc[0] = True
        return float(pd.Series(self.attacked.mean(1), index=table.index)[ok].idxmax())

    def summary(self) -> str:
        """The recommendation in a sentence."""
        e = self.recommended()
        table = self.table()
        here = table[table["epsilon"] == e].mean(numeric_only=True)
        plain = table[table["epsilon"] == self.epsilon[0]].mean(numeric_only=True)
        if e == self.epsilon[0]:
            return (
                f"Stay at epsilon {e:g}: every larger one costs more recourse or accuracy than "
                "allowed "
                f"(attacked accuracy {here['attacked accuracy']:.1%}, validity "
                f"{here['validity']:.1%})."
            )
        return (
            f"Stop at epsilon {e:g}: under attack of {self.attack:g} accuracy rises from "
            f"{plain['attacked accuracy']:.1%} to {here['attacked accuracy']:.1%}, while validity "
            "goes from "
            f"{plain['validity']:.1%} to {here['validity']:.1%} and an answer costs "
            f"{here['extra cost']:+.3f} "
            f"({here['extra cost'] / plain['cost']:+.0%})."
        )

    def plot(self) -> Any:
        """Validity, cost, accuracies and survival against epsilon, and the recommended point."""
        from holdfast.render.charts.tradeoff import tradeoff_chart

        return tradeoff_chart(self.table(), self.recommended(), self.attack)

    def to_json(self) -> str:
        """The table, the recommendation and what they are about."""
        content = {
            "epsilon": list(self.epsilon),
            "seeds": self.hardened.seeds,
            "methods": {name: repr(method) for name, method in self.methods.items()},
            "attack": self.attack,
            "accuracy measured on": self.measured_on,
            "recommended": self.recommended(),
            "table": json.loads(self.table().to_json(orient="records", double_precision=10)),
        }
        return json.dumps(content, indent=1)

    def save(self, path: str | Path) -> None:
        """Write what `to_json` gives."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def __repr__(self) -> str:
        return (
            self.table().to_string(float_format=lambda v: f"{v:.3f}", index=False)
            + f"\n\n{self.summary()}"
        )


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
