"""What hardening a model costs in recourse, and where to stop.

The same methods, with the same budget and the same random numbers, look for recourse on models
trained against attacks of growing size epsilon:

    validity      of the rows that the model of epsilon refuses, the share with an answer
    cost          mean |x' - x|_2 over these answers; `cost of attempts` over all that was tried
    extra cost    mean of |x'_e - x|_2 - |x'_0 - x|_2 over the rows that both the plain model (the
                  least epsilon) and that of epsilon refuse and answer
    accuracy      on the test rows, as they are and attacked by PGD: all models with the same radius
    survives      share of the answers that networks of the same epsilon but another seed accept as
                  well

Krishna, Agarwal and Lakkaraju, "On the Trade-offs between Adversarial Robustness and Actionable
Explanations". With an endless budget nearly every row would get an answer, so validity speaks of
the budget that the methods are given.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from holdfast._core.progress import Progress
from holdfast._core.result import as_json, write_csv
from holdfast._core.types import Label
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import SettingError
from holdfast.evaluation._saved import read_marked, write_as, write_marked
from holdfast.evaluation.attacks import attacked_accuracy
from holdfast.evaluation.cross_validity import CrossValidity
from holdfast.evaluation.hardened_answers import HardenedAnswers, SavedAnswers
from holdfast.explainer import Explainer
from holdfast.models.base import Model
from holdfast.training.adversarial import AdversarialModels

Array = np.ndarray[Any, Any]
ATTACK = 0.1  # radius of the attack by which all models are measured


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
        X: rows to ask about; each model is asked about those it refuses.
        methods: explainers, by name or just a list. Those that learn from data are fitted on the
            training rows.
        target: the wanted class; None is, for each row, the one that the plain model does not give
            it.
        test: rows and outcomes to measure accuracy on; None takes the training rows, which
            flatters the models.
        attack: radius of the PGD attack for the attacked accuracy.
        seed: of the methods' random numbers, which for a row are the same on every model.
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
            # A method that learns from data is fitted anew for each model; what it learnt from the
            # data alone is passed on, see `_fitted`.
            for i, s in itertools.product(range(len(hardened.epsilon)), range(hardened.seeds)):
                model = hardened.model(hardened.epsilon[i], s)
                method = _fitted(method, hardened.X, model)
                found[name][i].append(method.explain(model, X, targets[s], seed=seed))
                bar.step(1)
    rows = hardened.X if test is None else test[0]
    y = hardened.y if test is None else test[1]
    shape = len(hardened.epsilon), hardened.seeds
    right = attacked_accuracy(hardened.bank, rows, y, epsilon=0.0).reshape(shape)
    kept = attacked_accuracy(hardened.bank, rows, y, epsilon=attack).reshape(shape)
    return Tradeoff(
        HardenedAnswers(hardened, named, found),
        hardened.epsilon,
        hardened.seeds,
        {name: repr(method) for name, method in named.items()},
        right,
        kept,
        attack,
        "training" if test is None else "test",
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
    """Fitted for this model; an autoencoder does not depend on the model and is trained once."""
    if not (method.needs_data or method.uses_data):
        return method
    fresh = type(method)(**method.get_params(deep=False))
    net = getattr(method, "autoencoder_", None)
    if net is not None:
        fresh.set_params(autoencoder=net)
    return fresh.fit(model, X)


@dataclass(frozen=True, eq=False, repr=False)
class Tradeoff:
    """Answers of every method on every model, and what follows from them; made by `hf.tradeoff`.

    A file keeps the figures but no models: after `load`, asking the models again is an error.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=200)
    >>> recipe = hf.Recipe(hidden=[], epochs=5)
    >>> hardened = hf.train_adversarial(recipe, data.X, data.y, data.schema, epsilon=[0.0, 0.2])
    >>> nearest = {"nearest": hf.NearestNeighbor()}
    >>> study = hf.tradeoff(hardened, data.X.head(20), nearest, target="yes")
    >>> study.recommended() in study.epsilon
    True
    """

    found: HardenedAnswers | SavedAnswers
    epsilon: tuple[float, ...]  # radii of the attacks in training, least first
    seeds: int  # how many networks there are of each epsilon
    methods: dict[str, str]  # name -> settings
    accuracy: Array  # (epsilons, seeds)
    attacked: Array  # (epsilons, seeds), all with the radius
    attack: float
    measured_on: str  # "test" or "training" rows

    # ---- what asks the models again

    @property
    def made(self) -> HardenedAnswers:
        """Models, methods and answers, of a study that was not read from a file."""
        if not isinstance(self.found, HardenedAnswers):
            raise SettingError(
                "this study was read from a file, which keeps figures and no models; "
                "make it again with hf.tradeoff(...)"
            )
        return self.found

    @property
    def hardened(self) -> AdversarialModels:
        """The models."""
        return self.made.hardened

    @property
    def answers(self) -> dict[str, list[list[Counterfactuals]]]:
        """Method -> epsilon -> seed -> its answers."""
        return self.made.answers

    def cross_validity(self, method: str) -> CrossValidity:
        """Answers of each epsilon on the models of each epsilon, all of the first seed; without the
        epsilons whose model refuses nobody."""
        return self.made.cross_validity(method)

    def under_noise(
        self, method: str, *, sd: float = 0.1, draws: int = 1000, seed: int = 0
    ) -> Array:
        """(epsilons,) share of noisy copies of the answers that their own model refuses.

        Copies are encoded rows plus normal numbers of this standard deviation; Pawelczyk et al.
        2023 call it the recourse invalidation rate.
        """
        return self.made.under_noise(method, sd=sd, draws=draws, seed=seed)

    def bounds(self) -> pd.DataFrame:
        """How much longer SCFE's step is on each model than on the plain one, and what bounds that
        from both sides (Theorems 1 and 2, `holdfast.evaluation.bounds`): one line per row that both
        models refuse.

        For methods that minimise (gap - score)^2 + lam |step|^2, that is `Descent(loss="score",
        norm=2)`. Steps are those of the tangent plane at the row, which for a linear model is the
        model. Columns: `method`, `epsilon`, `seed`, `row`, `difference`, `bound`, `paper` (the
        bound as printed), `violated`, `paper violated`.
        """
        return self.made.bounds()

    # ---- figures

    def rows(self) -> pd.DataFrame:
        """One line per method, epsilon, seed and row asked about: found or not, and the
        costs."""
        return self.found.rows()

    def survives(self, method: str) -> Array:
        """(epsilons,) share of the answers of each network that those of the same epsilon and other
        seeds accept."""
        return self.found.survives(method)

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

    # ---- the answer

    def recommended(
        self, *, validity: float = 0.05, cost: float = 0.25, accuracy: float = 0.02
    ) -> float:
        """Where to stop: the epsilon with the best attacked accuracy among those that cost little
        enough.

        Args:
            validity: how far validity, averaged over the methods, may fall.
            cost: how much the cost of a row that both models answer may grow, as a share of what it
                was.
            accuracy: how far accuracy may fall.
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

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page with the recommendation, table and curves; needs the `plot`
        extra."""
        from holdfast.render.result_page import study_page

        facts = [
            *((f"Method {name}", settings) for name, settings in self.methods.items()),
            ("Networks of each epsilon", str(self.seeds)),
            ("Radius of the attack", f"{self.attack:g}"),
            ("Accuracy measured on", f"{self.measured_on} rows"),
        ]
        caption = "Against the size of the attack in training; the rule is where to stop."
        return study_page(self, path, "What hardening costs in recourse", caption, facts)

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """The table, the recommendation and what they are about, as plain values."""
        return {
            "epsilon": list(self.epsilon),
            "seeds": self.seeds,
            "methods": self.methods,
            "attack": self.attack,
            "accuracy measured on": self.measured_on,
            "recommended": self.recommended(),
            "table": json.loads(self.table().to_json(orient="records", double_precision=10)),
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, also written to a file if a path is given."""
        return as_json(self.to_dict(), path)

    def save(self, path: str | Path) -> None:
        """Write the extension's format: .parquet has all figures, for `load`; .json what `to_json`
        gives, and .csv what `table` gives."""
        content = {
            "epsilon": list(self.epsilon),
            "seeds": self.seeds,
            "methods": self.methods,
            "survival": {name: self.survives(name).tolist() for name in self.methods},
            "accuracy": self.accuracy.tolist(),
            "attacked": self.attacked.tolist(),
            "attack": self.attack,
            "measured on": self.measured_on,
        }
        write_as(
            path,
            {
                ".parquet": lambda file: write_marked(file, self.rows(), "Tradeoff", content),
                ".json": self.to_json,
                ".csv": lambda file: write_csv(self.table(), file, index=False),
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> "Tradeoff":
        """Read a .parquet file written by `save`."""

        def build(lines: pd.DataFrame, content: dict[str, Any]) -> "Tradeoff":
            survival = {name: np.array(shares) for name, shares in content["survival"].items()}
            return cls(
                SavedAnswers(lines, survival),
                tuple(float(e) for e in content["epsilon"]),
                int(content["seeds"]),
                {str(name): str(text) for name, text in content["methods"].items()},
                np.array(content["accuracy"], dtype=float),
                np.array(content["attacked"], dtype=float),
                float(content["attack"]),
                str(content["measured on"]),
            )

        return read_marked(path, "Tradeoff", build)

    def __repr__(self) -> str:
        return (
            self.table().to_string(float_format=lambda v: f"{v:.3f}", index=False)
            + f"\n\n{self.summary()}"
        )
