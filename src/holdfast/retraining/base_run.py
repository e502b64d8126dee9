"""The run that made the model in use, and the same run with variations."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Unpack, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.checks import require_integer
from holdfast._core.progress import Progress
from holdfast._core.types import Outcomes
from holdfast.errors import ModelError, SettingError
from holdfast.models.base import Model
from holdfast.models.black_box import BlackBox
from holdfast.nn.architecture import describe
from holdfast.nn.stack import ModelStack, Stack
from holdfast.retraining.estimators import (
    EstimatorFit,
    described,
    fit_all,
    of_rows,
    one_thread,
    weight_name,
)
from holdfast.retraining.fitted import FittedEstimators
from holdfast.retraining.from_files import is_forgetful, xgboost_estimator
from holdfast.retraining.loop import Variation, derived, fit_stack
from holdfast.retraining.next_training import USUAL_SPREAD
from holdfast.retraining.outcomes import ClassNames, as_named, class_numbers, numbers, outcomes
from holdfast.retraining.recipe import Recipe, RecipeLike
from holdfast.retraining.row_facts import BesideFeatures, RowFacts
from holdfast.schema.schema import Schema

MOST_AGO = 3  # how many periods back the windows of the family `history` end


@dataclass(frozen=True, eq=False)
class BaseRun:
    """A recipe, the rows it learns from and a seed: what a model is made from, and what a
    `Variation` varies.

    `BaseRun.of` checks that they fit together.
    """

    recipe: Recipe
    X: pd.DataFrame
    y: "pd.Series[Any]"
    schema: Schema
    classes: tuple[Any, ...]
    seed: int = 0
    # positions of rows to leave out in turn; None draws an order of all
    pool: Tensor | None = None
    periods: Tensor | None = None  # (n,) the number of each row's period of time, the oldest is 0
    # from how many of the newest periods the model in use has learnt; None: all
    window: int | None = None
    # (n,) numbers of the blocks of rows that are drawn together; None: each row alone
    blocks: Tensor | None = None
    weight: Tensor | None = None  # (n,) how much each row counts; None: all alike
    # what else the estimator's `fit` is given
    fit_params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # how far the models of `fresh` deviate, as a multiple of how far bootstraps do
    spread: float = USUAL_SPREAD

    @classmethod
    def of(
        cls,
        recipe: RecipeLike,
        X: pd.DataFrame,
        y: Outcomes,
        schema: Schema,
        classes: ClassNames | None = None,
        seed: int = 0,
        pool: Sequence[int] | None = None,
        *,
        window: int | None = None,
        fit_params: Mapping[str, Any] | None = None,
        spread: float = USUAL_SPREAD,
        **beside: Unpack[BesideFeatures],
    ) -> "BaseRun":
        facts = RowFacts.of(X, schema, **beside)
        run = cls._of_table(
            recipe, facts.table, y, schema, classes, seed, pool, facts.periods, window
        )
        more = {
            "blocks": facts.blocks,
            "weight": facts.weight,
            "fit_params": dict(fit_params or {}),
        }
        run = replace(run, **more, spread=spread)
        if run.recipe.estimator is None and run.fit_params:
            raise SettingError("fit_params are for estimators; a network learns by its recipe")
        return run

    @classmethod
    def _of_table(
        cls,
        recipe: RecipeLike,
        table: pd.DataFrame,
        y: Outcomes,
        schema: Schema,
        classes: ClassNames | None,
        seed: int,
        pool: Sequence[int] | None,
        periods: Tensor | None,
        window: int | None,
    ) -> "BaseRun":
        if window is not None and periods is None:
            raise SettingError("window= counts periods of time; pass time= as well")
        if window is not None:
            require_integer("window", window)
        # A model that knows its settings is its own recipe. One from an XGBoost file has forgotten
        # them: what it has learnt on these rows tells which settings fit best.
        forgetful = is_forgetful(recipe)
        column = outcomes(table, y)
        if forgetful and not isinstance(recipe, Model):
            recipe = Model.of(
                cast(Any, recipe), schema, classes=None if classes is None else list(classes)
            )
        if isinstance(recipe, Model) and not recipe.is_regression:
            learnt_names = None
            if isinstance(recipe, BlackBox):
                learnt_names = getattr(recipe.wrapped, "classes_", None)
            if learnt_names is None:
                learnt_names = range(len(recipe.classes))
            column = as_named(column, learnt_names, recipe.classes)
            classes = recipe.classes if classes is None else classes
        if forgetful:
            assert isinstance(recipe, BlackBox)
            learnt = cls(
                Recipe(), table, column, schema, tuple(recipe.classes), seed, None, periods, window
            ).in_use()
            how = Recipe(
                estimator=xgboost_estimator(recipe, learnt.X, learnt.y, seed), inputs=recipe.inputs
            )
        else:
            how = Recipe.of(recipe)
        names = how.names(table, column, classes)
        how.check(schema, names)
        left_out = None if pool is None else _positions(pool, len(table))
        return cls(how, table, column, schema, tuple(names), seed, left_out, periods, window)

    @cached_property
    def x(self) -> Tensor:
        """(n, d) the encoded rows."""
        return self.schema.encode(self.X)

    @cached_property
    def labels(self) -> Tensor:
        """(n,) the numbers of their classes; of a regression, the outcomes themselves."""
        return class_numbers(self.y, self.classes) if self.classes else numbers(self.X, self.y)

    @cached_property
    def left_out(self) -> Tensor:
        """Positions of the rows to leave out in turn."""
        order = torch.Generator().manual_seed(self.seed)
        return torch.randperm(len(self.X), generator=order) if self.pool is None else self.pool

    # ---- for families

    def generator(self, purpose: int, i: int) -> torch.Generator:
        """Random numbers of model i, whatever the number of models."""
        return torch.Generator().manual_seed(derived(derived(self.seed, purpose), i + 2))

    def same_seed(self, models: range) -> tuple[int, ...]:
        return (self.seed,) * len(models)

    def new_seeds(self, models: range) -> tuple[int, ...]:
        return tuple(self.seed + 1 + i for i in models)

    def own_seeds(self, purpose: int, models: Iterable[int]) -> tuple[int, ...]:
        """Seeds that no other purpose shares."""
        return tuple(derived(derived(self.seed, purpose), i + 2) for i in models)

    # ---- periods of time

    def in_use(self) -> "BaseRun":
        """The run that made the model in use, on the rows of the newest periods."""
        if self.periods is None or self.window is None:
            return self
        new = self.periods > int(self.periods.max()) - self.window
        rows = new.nonzero().squeeze(1)
        pool = self.pool
        if pool is not None:
            if not bool(new[pool].all()):
                raise SettingError(
                    f"pool must hold rows of the newest {self.window} periods, as the window is"
                )
            pool = new.cumsum(0)[pool] - 1
        return replace(
            self,
            X=self.X.iloc[rows.numpy()],
            y=self.y.iloc[rows.numpy()],
            pool=pool,
            periods=None,
            window=None,
            blocks=None if self.blocks is None else self.blocks[rows],
            weight=None if self.weight is None else self.weight[rows],
            fit_params={
                name: of_rows(value, rows.numpy(), len(self.X))
                for name, value in self.fit_params.items()
            },
        )

    def earlier(self) -> list[Tensor]:
        """(n,) the rows of each earlier window; the one that ends one period before the newest
        comes first."""
        if self.periods is None:
            raise SettingError(
                "the family 'history' needs to know how old rows are; pass time=, the name of a "
                "column or one value for each row"
            )
        count = int(self.periods.max()) + 1
        length = count - 1 if self.window is None else self.window
        ends = [end for end in range(count - 1, 0, -1) if self.window is None or end >= length][
            :MOST_AGO
        ]
        if not ends:
            raise SettingError(
                f"the family 'history' needs an earlier window: there are {count} periods, and "
                f"the model in use learns from {self.window or 'all'} of them; pass a smaller "
                "window="
            )
        return [(self.periods < end) & (self.periods >= end - length) for end in ends]

    # ---- making models

    def train(self, variation: Variation, bar: Progress) -> ModelStack:
        """The networks of a variation."""
        recipe = self._recipe(variation)
        k = len(self.classes)
        variation = self._weighted(variation)
        if not variation.last_layer:
            return recipe.train(self.x, self.labels, k, variation, bar)
        # A linear model on what the layers below make of the rows.
        first = self._weighted(Variation((self.seed,), (self.seed,)))
        base = recipe.train(self.x, self.labels, k, first, Progress(False, ""))
        count = len(variation)
        if not isinstance(base, Stack) or len(base.sizes) < 3:
            raise SettingError(
                "the family 'last_layer' needs a network of Linear and ReLU layers in turn"
            )
        dtype = base.theta.dtype
        with torch.no_grad():
            features = base.hidden(self.x.to(dtype))[0].clone()
        with torch.device("meta"):
            head = nn.Sequential(nn.Linear(base.sizes[-2], base.sizes[-1], dtype=dtype)).to_empty(
                device="cpu"
            )
        heads = fit_stack(head, recipe.start(head), features, self.labels, variation, recipe, bar)
        whole = Stack(base.sizes, count, dtype)
        tensors = {name: v.expand(count, *v.shape[1:]) for name, v in base.state().items()}
        last = list(tensors)[-2:]
        whole.load({**tensors, **dict(zip(last, heads.state().values(), strict=True))})
        return whole

    def _weighted(self, variation: Variation) -> Variation:
        """The variation, in which rows also count by their weights, which have mean 1, as they
        scale the steps."""
        if self.weight is None:
            return variation
        weight = (self.weight / self.weight.mean()).float().expand(len(variation), -1)
        return replace(
            variation,
            emphasis=weight if variation.emphasis is None else variation.emphasis * weight,
        )

    def fit_estimators(self, variation: Variation, workers: int, bar: Progress) -> FittedEstimators:
        """Clones of the estimator; the variation says which rows, labels and seed a clone gets."""
        fits = list[EstimatorFit]()
        names = np.array(self.classes)
        each = one_thread(self.recipe.estimator)
        for i in range(len(variation)):
            rows = np.arange(len(self.X))
            y = self.y
            if variation.kept is not None:
                rows = np.flatnonzero(variation.kept[i].numpy())
            if variation.rows is not None:
                rows = variation.rows[i].numpy()
            if variation.emphasis is not None:
                rows = np.repeat(rows, variation.emphasis[i].long().numpy()[rows])
            if variation.order[i] != self.seed:
                order = torch.Generator().manual_seed(derived(variation.order[i], 1))
                rows = rows[torch.randperm(len(rows), generator=order).numpy()]
            if variation.labels is not None:
                labels = variation.labels[i].numpy()
                y = pd.Series(names[labels] if self.classes else labels, index=y.index)
            settings = each | dict(variation.settings[i] if variation.settings else {})
            table = self.recipe.estimator, self.recipe.inputs, self.X, y, self.schema, self.classes
            fits.append(
                EstimatorFit(*table, variation.weights[i], rows, settings, self.given_to_fit())
            )
        return FittedEstimators(fit_all(fits, workers, bar))

    def given_to_fit(self) -> dict[str, Any]:
        """What an estimator's `fit` gets besides rows and outcomes."""
        if self.weight is None:
            return dict(self.fit_params)
        return {weight_name(self.recipe.estimator): self.weight.numpy(), **self.fit_params}

    def _recipe(self, variation: Variation) -> Recipe:
        return self.recipe if variation.width == 1 else self.recipe.widened(variation.width)

    # ---- what models are made from

    def origins(self, variation: Variation) -> tuple[str, ...]:
        """For each model of a variation, a short hash of the rows and outcomes it learns from, and
        one of all it is made from."""
        recipe = self._recipe(variation)
        n = len(self.X)
        base = self.seed if variation.last_layer else None
        common = hashlib.sha256(
            f"{_settings(recipe, n)} {self.schema.encoding_key} {base}".encode()
        )
        common.update(self.x.numpy().tobytes() + self.labels.numpy().tobytes())
        if self.weight is not None:
            common.update(self.weight.numpy().tobytes())
        if self.fit_params:
            common.update(described(dict(self.fit_params)).encode())
        table = hashlib.sha256(self.x.numpy().tobytes() + self.labels.numpy().tobytes())
        out = list[str]()
        for i in range(len(variation)):
            digest = common.copy()
            rows = table.copy()
            epochs = variation.epochs[i] if variation.epochs else recipe.epochs
            # otherwise the order makes no difference
            is_ordered = recipe.estimator is not None or recipe.batch_size < n
            order = variation.order[i] if is_ordered else None
            digest.update(f"{variation.weights[i]} {order} {epochs}".encode())
            epsilon = variation.epsilon[i] if variation.epsilon else recipe.epsilon
            if epsilon:
                digest.update(f"{float(epsilon)} {recipe.adversary()} {recipe.attack_box}".encode())
            if variation.settings:
                digest.update(f"{sorted(variation.settings[i].items())}".encode())
            drawn = () if variation.rows is None else (variation.rows,)
            for part in (variation.kept, variation.emphasis, variation.labels, *drawn):
                digest.update(b"-" if part is None else part[i].numpy().tobytes())
                rows.update(b"-" if part is None else part[i].numpy().tobytes())
            out.append(f"{rows.hexdigest()[:8]}-{digest.hexdigest()[:16]}")
        return tuple(out)


def _positions(pool: Sequence[int], n: int) -> Tensor:
    rows = torch.as_tensor(np.asarray(pool), dtype=torch.int64)
    if not (len(rows) == len(set(map(int, pool))) and bool(((rows >= 0) & (rows < n)).all())):
        raise SettingError(f"pool must hold different positions of rows between 0 and {n - 1}")
    return rows


def _settings(recipe: Recipe, n: int) -> str:
    """The settings that matter with n rows, however they were written."""
    if recipe.estimator is not None:
        return f"{described(recipe.estimator)} {recipe.inputs}"
    shape: Any = recipe.hidden
    if recipe.module is not None:
        try:
            shape = describe(recipe.module)
        except ModelError:
            shape = repr(recipe.module)
        shape = f"{shape} {next(recipe.module.parameters()).dtype}"
    loop = (
        min(int(recipe.batch_size), n),
        float(recipe.lr),
        float(recipe.weight_decay),
        float(recipe.adam_eps),
    )
    return f"{shape} {loop}" + (f" {recipe.optimizer}" if recipe.optimizer != "adam" else "")
