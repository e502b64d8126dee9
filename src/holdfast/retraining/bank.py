"""A bank: many retrained models, trained together and kept stacked.

Every network of a family is trained in the same tensor program; estimators are cloned and fitted in
a pool of processes. Model i of a family is the same, up to rounding, whatever else is in the bank.
"""

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast._core.checks import did_you_mean, listed
from holdfast._core.rows import limited_threads
from holdfast._core.types import Outcomes, Rows
from holdfast.counterfactuals import Counterfactuals, RowSelection, positions
from holdfast.errors import ModelError, SettingError
from holdfast.models.base import Model, ModelLike
from holdfast.retraining.bank_checks import check_fits, check_whole
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.making import made_groups, wanted_models
from holdfast.retraining.model_group import ModelGroup, group_of_one, sample_of, signature
from holdfast.retraining.next_training import USUAL_SPREAD
from holdfast.retraining.outcomes import ClassNames, outcomes, plain
from holdfast.retraining.recipe import Recipe, RecipeLike
from holdfast.retraining.row_facts import BesideFeatures
from holdfast.retraining.split import BankSplit, Counts, disjoint
from holdfast.schema.schema import Schema


@dataclass(frozen=True, eq=False)
class ModelBank:
    """Retrained models, by family: what a model could have been if trained a little
    differently.

    Make one with `ModelBank.retrain`, `ModelBank.from_tables`, or `ModelBank.of` from existing
    models.

    >>> import holdfast as hf
    >>> data = hf.datasets.moons().take(range(200))
    >>> recipe = hf.Recipe(hidden=(8,), epochs=5)
    >>> families = {"seed": 3, "bootstrap": 2}
    >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families=families)
    >>> bank
    ModelBank(5 models; seed: 3, bootstrap: 2; networks 2-8-2; classes 'no', 'yes')
    >>> bank.predict(data.X).shape  # models, rows
    (5, 200)
    """

    groups: tuple[ModelGroup, ...]
    schema: Schema
    classes: tuple[Any, ...]
    recipe: Recipe | None  # None: the models were made elsewhere
    seed: int
    around: Model | None = None  # the model in use, if judges are stretched away from it

    # ---- making one

    @classmethod
    def retrain(
        cls,
        recipe: RecipeLike,
        X: pd.DataFrame,
        y: Outcomes,
        schema: Schema,
        *,
        families: Mapping[str, int | range] | None = None,
        classes: ClassNames | None = None,
        seed: int = 0,
        pool: Sequence[int] | None = None,
        time: str | ArrayLike | None = None,
        window: int | None = None,
        groups: str | ArrayLike | None = None,
        sample_weight: str | ArrayLike | None = None,
        fit_params: Mapping[str, Any] | None = None,
        spread: float = USUAL_SPREAD,
        workers: int | None = None,
        progress: bool = False,
        cache: str | Path | None = None,
    ) -> "ModelBank":
        """Make the model of a recipe again and again.

        Args:
            recipe: a `Recipe`, or a torch module, estimator, pipeline or `Model` to take one from;
                a fitted one is made again from its settings.
            X, y, schema, classes, seed: as for `Recipe.fit`; a model fitted with these is the one
                the families vary. A `Model` has its own classes, and `y` may use its own names or
                those it was given.
            families: how many models of each family, see `retraining.families`; range(25, 50) makes
                just those. By default 100 of `retrain`, and 100 of `history` if there is a
                `time`.
            pool: positions of the rows that `leave_one_out` leaves out in turn; None draws them
                from the seed.
            time: how old rows are: a column of X, which the schema need not have, or one value for
                each row. Up to 12 different values are periods of their own; more are cut into four
                periods of as many rows.
            window: the model in use, and every family but `history`, learns from this many of the
                newest periods, by default from all rows. `history` is made as `retrain` is, from
                windows of as many periods that end one, two and three periods earlier, in turn;
                without a window, from all rows up to there. Rows of one time, or of neighbouring
                times, are drawn together.
            groups: which rows belong together and are drawn together, such as those of one person:
                a column of X, which the schema need not have, or one value for each row.
            sample_weight: how much each row counts: a column of X, or one number for each row.
            fit_params: what else an estimator's `fit` is given; values given per row are taken for
                the rows drawn. For a pipeline they carry the names of its steps, as in
                "model__eval_metric".
            spread: how many times as far from the model in use the models of `fresh` lie as those
                of `retrain`: they learn from n / spread^2 rows; see `spread_for`.
            workers: how many estimators are fitted at once, each by one thread; by default as many
                as there are cores. Networks are trained together, in one thread.
            progress: show a bar on stderr.
            cache: a folder of models made before, which are read instead of made again. New ones
                are kept there as they are made, so a stopped run goes on from there. Models that
                cannot be saved are made each time. Its files are taken to be your own; see
                SECURITY.md.
        """
        wanted = wanted_models(families, has_time=time is not None)
        if not isinstance(seed, Integral):
            raise SettingError(f"seed must be an integer, got {seed!r}")
        if workers is not None and workers < 1:
            raise SettingError(f"workers must be at least 1, got {workers}")
        beside: BesideFeatures = {"time": time, "groups": groups, "sample_weight": sample_weight}
        whole = BaseRun.of(
            recipe,
            X,
            y,
            schema,
            classes,
            seed,
            pool,
            window=window,
            fit_params=fit_params,
            spread=spread,
            **beside,
        )
        made = made_groups(whole, wanted, workers=workers, progress=progress, cache=cache)
        run = whole.in_use()
        return cls(made, schema, run.classes, run.recipe, seed)

    @classmethod
    def from_tables(
        cls,
        recipe: RecipeLike,
        tables: Mapping[str, tuple[pd.DataFrame, Outcomes]],
        schema: Schema,
        *,
        classes: ClassNames | None = None,
        models: int = 1,
        seed: int = 0,
        progress: bool = False,
    ) -> "ModelBank":
        """One family per table, each with `models` seeds: what real data of another year or place
        would have made.

        Args:
            recipe, schema, classes, seed, progress: as for `retrain`.
            tables: name of the family -> its rows and their outcomes.
            models: how many models of each table.
        """
        if not bool(tables):
            raise SettingError("from_tables needs at least one table")
        known = {name: (X, outcomes(X, y)) for name, (X, y) in tables.items()}
        if (
            classes is None
            and not isinstance(recipe, Model)
            and not Recipe.of(recipe).is_regression
        ):
            classes = sorted({plain(v) for _, y in known.values() for v in y.dropna().unique()})
        how: dict[str, Any] = {
            "families": {"seed": models},
            "classes": classes,
            "seed": seed,
            "progress": progress,
        }
        parts = [
            cls.retrain(recipe, X, y, schema, **how).renamed(str(name))
            for name, (X, y) in known.items()
        ]
        return parts[0].join(*parts[1:])

    @classmethod
    def of(
        cls,
        models: Model | ModelLike | Sequence[Model | ModelLike],
        *,
        family: str = "release",
        schema: Schema | None = None,
        classes: Sequence[Hashable] | None = None,
    ) -> "ModelBank":
        """A bank of existing models: the last release, the next one, those of a registry.

        Args:
            models: one or several, all with the same classes and the same encoding.
            family: what the bank calls them.
            schema, classes: as for `Model.of`, for those that are not a `Model` yet.

        >>> import holdfast as hf
        >>> data = hf.datasets.moons().take(range(200))
        >>> how = {"hidden": [], "epochs": 3}
        >>> old = hf.train_network(data.X, data.y, data.schema, seed=1, **how)
        >>> new = hf.train_network(data.X, data.y, data.schema, seed=2, **how)
        >>> hf.ModelBank.of([old, new])
        ModelBank(2 models; release: 2; networks 2-2; classes 'no', 'yes')
        """
        given: list[Any] = (
            [*cast(list[Any], models)] if isinstance(models, list | tuple) else [models]
        )
        if len(given) <= 0:
            raise SettingError("ModelBank.of needs at least one model")
        known = list[Model]()
        for model in given:
            if isinstance(model, Model):
                known.append(model)
                continue
            what = f"a {type(model).__name__} does not say which columns it takes"
            if schema is None:
                raise ModelError(f"{what}; pass schema=, or wrap it with hf.Model.of first")
            known.append(Model.of(model, schema, classes=classes))
        banks = [
            cls((group_of_one(m, family),), m.schema, tuple(m.classes), None, 0) for m in known
        ]
        return banks[0].join(*banks[1:])

    def renamed(self, name: str) -> "ModelBank":
        """The same models as one family of this name."""
        return replace(self, groups=tuple(replace(group, family=name) for group in self.groups))

    def stretched(self, model: Model, spread: float) -> "ModelBank":
        """The same models as judges that lie `spread` times as far from the model in use: as far as
        models of new data will, with a spread from `spread_for`. The family `retrain` is then
        called `stretch`; `history` stays as it is."""
        self.check_fits(model)
        if spread == 1:
            return self
        if model.labels_only:
            what = "the model predicts classes and gives no scores that could be stretched"
            raise ModelError(f"{what}; use the family 'fresh'")
        groups = list[ModelGroup]()
        for group in self.groups:
            name = "stretch" if group.family == "retrain" else group.family
            groups.append(
                group if group.family == "history" else replace(group, family=name, spread=spread)
            )
        return replace(self, groups=tuple(groups), around=model)

    def join(self, *others: "ModelBank") -> "ModelBank":
        """One bank of all models; classes and encoding must agree. In an audit each model counts
        once."""
        for other in others:
            self.check_fits(other)
        around = next((bank.around for bank in (self, *others) if bank.around is not None), None)
        return replace(
            self,
            groups=tuple(group for bank in (self, *others) for group in bank.groups),
            around=around,
        )

    def __getitem__(self, models: RowSelection | str) -> "ModelBank":
        """A bank of some of the models: the name of a family, or positions as a number, a slice,
        numbers, or a mask (M,). Each appears once, in the bank's order."""
        if isinstance(models, str):
            return self.subset(models)
        chosen = np.unique(positions(models, len(self), "models"))
        first = 0
        groups = list[ModelGroup]()
        for group in self.groups:
            places = chosen[(chosen >= first) & (chosen < first + len(group))] - first
            if len(places):
                groups.append(group if len(places) == len(group) else group.part(places.tolist()))
            first += len(group)
        return replace(self, groups=tuple(groups))

    def subset(
        self, families: str | Sequence[str] | None = None, models: RowSelection | None = None
    ) -> "ModelBank":
        """A bank of some of the models.

        Args:
            families: the name of a family, or several; None: all of them.
            models: which of the models of these families, as in `bank[...]`; None: all of them.
        """
        wanted = (
            [families]
            if isinstance(families, str)
            else list(self.families if families is None else families)
        )
        for name in wanted:
            if name not in self.families:
                raise SettingError(
                    f"the bank has no family {name!r}; {did_you_mean(name, self.families)}"
                )
        kept = tuple(group for group in self.groups if group.family in wanted)
        bank = replace(self, groups=kept)
        return bank if models is None else bank[models]

    def split(self, *, guide: Counts, calibration: Counts = 0, audit: Counts = 0) -> BankSplit:
        """Disjoint parts of the bank, made from the same base run: models that guide a search,
        others that calibrate it, and others again that audit what it found.

        Args:
            guide, calibration, audit: the number of models from every family of the bank, or from
                each by name. Copies, made from the same, count once.

        Returns:
            `BankSplit(guide, calibration, audit)`; model by model the same when the bank grows.

        >>> import holdfast as hf
        >>> data = hf.datasets.moons().take(range(100))
        >>> recipe = hf.Recipe(hidden=(4,), epochs=1)
        >>> families = {"retrain": 10, "seed": 5}
        >>> bank = hf.ModelBank.retrain(recipe, data.X, data.y, data.schema, families=families)
        >>> guide, calibration, audit = bank.split(guide=2, calibration={"retrain": 3}, audit=3)
        >>> guide.families, calibration.families, audit.families
        ({'retrain': 2, 'seed': 2}, {'retrain': 3}, {'retrain': 3, 'seed': 3})
        """
        parts = disjoint(self, {"guide": guide, "calibration": calibration, "audit": audit})
        return BankSplit(*(self[part] for part in parts))

    def check_fits(self, other: "Model | Counterfactuals | ModelBank") -> None:
        """Raise an error unless a model, counterfactuals or a bank have the same classes and the
        same encoding."""
        check_fits(self, other)

    # ---- looking at it

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def families(self) -> dict[str, int]:
        """How many models there are of each family."""
        return dict(Counter(self.family.tolist()))

    @property
    def family(self) -> np.ndarray[Any, Any]:
        """(M,) the family of each model."""
        return np.array(
            [group.family for group in self.groups for _ in range(len(group))], dtype=object
        )

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {count}" for name, count in self.families.items())
        kinds = ", ".join(dict.fromkeys(group.kind() for group in self.groups))
        outcome = f"classes {listed(self.classes)}" if self.classes else "regression"
        return f"ModelBank({len(self)} models; {counts}; {kinds}; {outcome})"

    def scores(self, X: Rows) -> Tensor:
        """Scores (M, n, k) that every model gives to every row."""
        dtypes = {group.dtype for group in self.groups}
        if isinstance(X, pd.DataFrame):
            frame = X
            x = {dtype: self.schema.encode(X, dtype) for dtype in dtypes}
        else:
            tables = any(group.networks is None for group in self.groups)
            frame = self.schema.decode(X) if tables else pd.DataFrame()
            x = dict.fromkeys(dtypes, X)
        with limited_threads(1):
            return torch.cat([group.scores(frame, x[group.dtype]) for group in self.groups])

    def predict(self, X: Rows) -> np.ndarray[Any, Any]:
        """(M, n) the class that every model gives to every row, or the number it estimates."""
        if not self.classes:
            return self.scores(X).squeeze(2).double().numpy()
        return np.array(self.classes, dtype=object)[self.scores(X).argmax(2).numpy()]

    def model(self, i: int) -> Model:
        """Model i alone, in the order of `family`."""
        if not -len(self) <= i < len(self):
            raise SettingError(f"the bank has {len(self)} models: there is no model {i}")
        i %= len(self)
        for group in self.groups:
            if i < len(group):
                if group.networks is None:
                    return group.estimators[i]
                return Model.of(group.networks.module(i), self.schema, classes=self.classes)
            i -= len(group)
        raise AssertionError

    def fingerprint(self) -> str:
        """A short hash of every model, by which a search remembers what it has seen."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for group in self.groups:
            group.add_to(digest)
        return digest.hexdigest()[:16]

    def origins(self) -> list[str]:
        """(M,) a short hash of what each model was made from, as weights differ in the last bits if
        it is trained in other company."""
        return [group.origin(i) for group in self.groups for i in range(len(group))]

    def members(self) -> frozenset[str]:
        """The origins: two banks overlap when they share one."""
        return frozenset(self.origins())

    def signatures(self) -> Tensor:
        """(M, s) what each model makes of the schema's probe rows; models that agree on all of them
        are the same."""
        return self._signatures

    @cached_property
    def _signatures(self) -> Tensor:
        return signature(self.scores(self.schema.probe))

    def samples(self) -> list[str]:
        """(M,) a short hash of the rows and outcomes that each model learnt from; '' if they are
        not known."""
        return [sample_of(origin) for origin in self.origins()]

    def checked(self) -> "ModelBank":
        """The bank itself, or an error unless every architecture takes the schema's rows and
        returns the classes."""
        check_whole(self)
        return self

    # ---- files

    def save(self, path: str | Path) -> None:
        """All models, the recipe and the schema in one safetensors file that runs no code: networks
        of listed layers, and estimators of scikit-learn, XGBoost and LightGBM, in pipelines too.
        What cannot be saved is refused before anything is written."""
        from holdfast.retraining.store import save_bank

        save_bank(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "ModelBank":
        """Read a bank written by `save`, under the checks of `Model.load`."""
        from holdfast.retraining.store import load_bank

        return load_bank(path)
