"""A bank: many retrained copies of a model, trained together and kept stacked.

    bank = ModelBank.retrain(recipe, X, y, schema, families={"seed": 100, "leave_one_out": 100}, seed=0)

Every network of a family is trained in the same tensor program; estimators are cloned and fitted in a pool of
processes. Model i of a family is the same, up to rounding, whatever else is in the bank.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.rows import chunks, limited_threads
from holdfast.errors import FileError, ModelError, SchemaError, SettingError, listed
from holdfast.models.base import Model, to_scores
from holdfast.models.formats import safetensors
from holdfast.nn.architecture import build, describe, flat_layers
from holdfast.nn.stack import ModelStack, Stack, stack_of
from holdfast.retraining.families import FOR_ESTIMATORS, BaseRun, RetrainJob, family
from holdfast.retraining.loop import Variation, fit_stack
from holdfast.retraining.recipe import Recipe, class_names, class_numbers, fitted_estimator, outcomes, plain
from holdfast.schema.schema import Schema

CELLS = 1 << 22  # scores and hidden values held at once


@dataclass(frozen=True)
class ModelGroup:
    """Models of one family and one architecture: a stack of networks, or fitted estimators."""

    family: str
    networks: ModelStack | None = None
    estimators: tuple[Model, ...] = ()
    origins: tuple[str, ...] = ()  # a short hash of all that each model was made from

    def __len__(self) -> int:
        return self.networks.count if self.networks is not None else len(self.estimators)

    @property
    def dtype(self) -> torch.dtype:
        return self.estimators[0].dtype if self.networks is None else self.networks.theta.dtype

    def scores(self, frame: pd.DataFrame, x: Tensor) -> Tensor:
        """(M, n, k) logits of rows and their encoding."""
        x = x.to(self.dtype)
        if self.networks is None:
            return torch.stack([m.score_frame(frame, x) for m in self.estimators])
        models, n = self.networks, len(x)
        size = max(8, CELLS // (models.count * sum(getattr(models, "sizes", (x.shape[1] * 8,)))))
        with torch.no_grad():
            raw = torch.cat([models.scores(part) for part in chunks(x, size)], 1) if n else models.scores(x)
        scores = to_scores(raw.flatten(0, 1), "logits")
        return scores.view(models.count, n, scores.shape[1])


@dataclass(frozen=True, eq=False)
class ModelBank:
    """Retrained copies of a model, by family."""

    groups: tuple[ModelGroup, ...]
    schema: Schema
    classes: tuple[Any, ...]
    recipe: Recipe
    seed: int

    # ---- making one

    @classmethod
    def retrain(
        cls,
        recipe: Any,
        X: pd.DataFrame,
        y: "pd.Series[Any]",
        schema: Schema,
        *,
        families: Mapping[str, int | range],
        classes: Sequence[Any] | None = None,
        seed: int = 0,
        pool: Sequence[int] | None = None,
        workers: int = 1,
        progress: bool = False,
    ) -> "ModelBank":
        """Make the model of a recipe again and again.

        Args:
            recipe: a `Recipe`, or a torch module or estimator to take one from.
            X, y, schema, classes, seed: as for `Recipe.fit`; a model fitted with these is the one the families vary.
            families: how many models of each family, see `retraining.families`; range(25, 50) makes just those.
            pool: positions of the rows that `leave_one_out` leaves out in turn; None draws them from the seed.
            workers: processes for estimators.
            progress: show a bar on stderr.
        """
        recipe, y = Recipe.of(recipe), outcomes(X, y)
        names = class_names(X, y, classes)
        if not isinstance(families, Mapping) or not families:
            raise SettingError(f"a bank needs at least one family of models, like {{'seed': 100}}; got {families!r}")
        if not isinstance(seed, Integral):
            raise SettingError(f"seed must be a whole number, got {seed!r}")
        wanted = {name: _wanted(name, models) for name, models in families.items()}
        if workers < 1:
            raise SettingError(f"workers must be at least 1, got {workers}")
        recipe.check(schema, names)
        labels = class_numbers(y, names)
        given = BaseRun(recipe, labels, len(names), seed, _pool(pool, len(X), seed))
        with Progress(progress, "retraining") as bar:
            bar.total(sum(len(models) for models in wanted.values()))
            x = schema.encode(X)
            groups = list[ModelGroup]()
            for name, models in wanted.items():
                if recipe.estimator is not None and name not in FOR_ESTIMATORS:
                    known = listed(FOR_ESTIMATORS)
                    raise SettingError(f"family {name!r} needs a network; for estimators there are {known}")
                for group in family(name)(given, models):
                    origins = origins_of(group, given, schema, x)
                    if recipe.estimator is None:
                        groups.append(ModelGroup(name, _networks(group, given, x, bar), origins=origins))
                    else:
                        fitted = _estimators(group.plan, given, X, y, schema, names, workers)
                        groups.append(ModelGroup(name, estimators=fitted, origins=origins))
                        bar.step(len(fitted))
        return cls(tuple(groups), schema, tuple(names), recipe, seed)

    @classmethod
    def from_tables(
        cls,
        recipe: Any,
        tables: Mapping[str, tuple[pd.DataFrame, "pd.Series[Any]"]],
        schema: Schema,
        *,
        classes: Sequence[Any] | None = None,
        models: int = 1,
        seed: int = 0,
        progress: bool = False,
    ) -> "ModelBank":
        """One family per table, each with `models` seeds: what real data of another year or place would have made."""
        if not tables:
            raise SettingError("from_tables needs at least one table")
        known = {name: (X, outcomes(X, y)) for name, (X, y) in tables.items()}
        seen = {plain(v) for _, y in known.values() for v in y.dropna().unique()}
        names = sorted(seen) if classes is None else list(classes)
        parts = [
            cls.retrain(
                recipe, X, y, schema, families={"seed": models}, classes=names, seed=seed, progress=progress
            ).renamed(str(name))
            for name, (X, y) in known.items()
        ]
        return parts[0].join(*parts[1:])

    def renamed(self, name: str) -> "ModelBank":
        """The same models as one family of this name."""
        return replace(self, groups=tuple(replace(group, family=name) for group in self.groups))

    def join(self, *others: "ModelBank") -> "ModelBank":
        """One bank of all models; classes and encoding must agree. In an audit each model counts once."""
        for other in others:
            self.check_fits(other)
        return replace(self, groups=tuple(group for bank in (self, *others) for group in bank.groups))

    def check_fits(self, other: Any) -> None:
        """Raise an error unless `other` (a model, answers, a bank) has the same classes and the same encoding."""
        if not other.classes:
            raise ModelError(
                "a bank holds retrained classifiers; a model that estimates a number cannot be audited yet"
            )
        if tuple(other.classes) != self.classes:
            hint = (
                "; pass classes=model.classes to ModelBank.retrain" if set(other.classes) == set(self.classes) else ""
            )
            raise ModelError(f"the bank has the classes {list(self.classes)}, not {list(other.classes)}{hint}")
        if other.schema.encoding_key != self.schema.encoding_key:
            raise SchemaError(
                "the bank was made with another schema, by which rows become other numbers; retrain it with the schema "
                "of the answers"
            )

    # ---- looking at it

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def families(self) -> dict[str, int]:
        """How many models there are of each family."""
        out = dict[str, int]()
        for group in self.groups:
            out[group.family] = out.get(group.family, 0) + len(group)
        return out

    @property
    def family(self) -> np.ndarray[Any, Any]:
        """(M,) the family of each model."""
        return np.array([group.family for group in self.groups for _ in range(len(group))], dtype=object)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {count}" for name, count in self.families.items())
        return f"ModelBank({len(self)} models; {kinds})"

    def scores(self, X: pd.DataFrame | Tensor) -> Tensor:
        """Scores (M, n, k) that every model gives to every row."""
        kinds = {group.dtype for group in self.groups}
        if isinstance(X, pd.DataFrame):
            frame, x = X, {kind: self.schema.encode(X, kind) for kind in kinds}
        else:
            read = any(group.networks is None for group in self.groups)
            frame, x = self.schema.decode(X) if read else pd.DataFrame(), dict.fromkeys(kinds, X)
        with limited_threads(1):
            return torch.cat([group.scores(frame, x[group.dtype]) for group in self.groups])

    def predict(self, X: pd.DataFrame | Tensor) -> np.ndarray[Any, Any]:
        """(M, n) the class that every model gives to every row."""
        return np.array(self.classes, dtype=object)[self.scores(X).argmax(2).numpy()]

    def model(self, i: int) -> Model:
        """Model i alone, in the order of `family`."""
        if not -len(self) <= i < len(self):
            raise SettingError(f"the bank has {len(self)} models, there is no model {i}")
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
            digest.update(group.family.encode())
            if group.networks is not None:
                for value in group.networks.state().values():
                    digest.update(f"{tuple(value.shape)}".encode() + value.contiguous().numpy().tobytes())
            for model in group.estimators:
                digest.update(model.fingerprint().encode())
        return digest.hexdigest()[:16]

    def origins(self) -> list[str]:
        """(M,) a short hash of what each model was made from: trained in other company, its weights differ in the
        last bits."""
        out = list[str]()
        for group in self.groups:
            for i in range(len(group)):
                if group.origins:
                    out.append(group.origins[i])
                elif group.networks is None:
                    out.append(group.estimators[i].fingerprint())
                else:
                    parts = [v[i].contiguous().numpy().tobytes() for v in group.networks.state().values()]
                    out.append(hashlib.sha256(b"".join(parts)).hexdigest()[:16])
        return out

    def members(self) -> frozenset[str]:
        """The origins: two banks overlap when they share one."""
        return frozenset(self.origins())

    def signatures(self) -> Tensor:
        """(M, s) what each model makes of the schema's probe rows: models that agree on all of them are the same."""
        scores = self.scores(self.schema.probe).double()  # (M, rows, k)
        return (scores - scores.mean(2, keepdim=True)).clamp(-100, 100).flatten(1)

    def checked(self) -> "ModelBank":
        """The bank itself; an error unless every architecture takes the rows of the schema and returns the classes."""
        if not self.groups:
            raise ModelError("there is no model in it")
        at = 0
        for group in self.groups:
            if not len(group) or len(group.origins) not in (0, len(group)):
                raise ModelError(f"family {group.family!r} has {len(group)} models from {len(group.origins)} origins")
            self.model(at)
            at += len(group)
        return self

    # ---- files

    def save(self, path: str | Path) -> None:
        """All models, the recipe and the schema in one safetensors file that runs no code."""
        if any(group.networks is None for group in self.groups):
            raise ModelError("a bank of estimators cannot be saved; keep its recipe and make it again from the seed")
        tensors, groups = dict[str, Tensor](), list[dict[str, Any]]()
        for i, group in enumerate(self.groups):
            assert group.networks is not None
            module, state = group.networks.module(0), group.networks.state()
            entry = {"family": group.family, "architecture": describe(module), "models": len(group)}
            groups.append(entry | {"origins": list(group.origins)})
            flat = [f"{j}.{name}" for j, layer in enumerate(flat_layers(module)) for name in layer.state_dict()]
            tensors |= {
                f"{i}/{new}": state[old].contiguous() for new, old in zip(flat, module.state_dict(), strict=True)
            }
        content = {
            "groups": groups,
            "schema": self.schema.to_dict(),
            "classes": list(self.classes),
            "recipe": self.recipe.to_dict(),
            "seed": self.seed,
        }
        safetensors.write(path, tensors, {"holdfast_bank": json.dumps(content)})

    @classmethod
    def load(cls, path: str | Path) -> "ModelBank":
        """Read a bank written by `save`."""
        if not Path(path).is_file():
            raise FileError(f"no bank at {str(path)!r}")
        try:
            metadata, tensors = safetensors.read(path)
            content = json.loads(metadata["holdfast_bank"])
            groups = [_shelf(entry, i, tensors) for i, entry in enumerate(content["groups"])]
            schema, recipe = Schema.from_dict(content["schema"]), Recipe.from_dict(content["recipe"])
            classes = tuple(content["classes"])
            return cls(tuple(groups), schema, classes, recipe, int(content["seed"])).checked()
        except Exception as error:  # the file may say anything
            what = f"{type(error).__name__}: {error}"
            raise FileError(f"{str(path)!r} is no readable bank ({what}); make one with `ModelBank.save`") from None


def _shelf(entry: dict[str, Any], i: int, tensors: dict[str, Tensor]) -> ModelGroup:
    with torch.device("meta"):  # the sizes are only a claim of the file
        module = build(entry["architecture"])
    mine = {name.partition("/")[2]: v for name, v in tensors.items() if name.partition("/")[0] == str(i)}
    expected = {name: (entry["models"], *v.shape) for name, v in module.state_dict().items()}
    for name, shape in expected.items():
        if name not in mine or tuple(mine[name].shape) != shape:
            raise ModelError(f"tensor {name!r} of family {entry['family']!r} does not fit its architecture")
    dtypes = {v.dtype for name, v in mine.items() if name in expected and v.is_floating_point()}
    if len(dtypes) != 1:
        raise ModelError(f"family {entry['family']!r} mixes kinds of numbers")
    models = stack_of(module.to_empty(device="cpu").to(dtypes.pop()), int(entry["models"]))
    models.load(mine)
    return ModelGroup(str(entry["family"]), models, origins=tuple(str(origin) for origin in entry["origins"]))


def _wanted(name: str, models: Any) -> range:
    """The numbers of the models asked for."""
    family(name)
    if not isinstance(models, range | Integral):
        raise SettingError(f"family {name!r} needs a number or a range of models, got {models!r}")
    wanted = models if isinstance(models, range) else range(int(models))
    if not len(wanted) or wanted.start < 0 or wanted.step != 1:
        raise SettingError(f"family {name!r} needs at least one model, got {models!r}")
    return wanted


def origins_of(group: RetrainJob, given: BaseRun, schema: Schema, x: Tensor) -> tuple[str, ...]:
    """A short hash of all that each model of a group is made from."""
    recipe, plan = group.recipe, group.plan
    base = given.seed if group.last_layer else None
    common = hashlib.sha256(f"{_plainly(recipe, given.n)} {schema.encoding_key} {base}".encode())
    common.update(x.numpy().tobytes() + given.labels.numpy().tobytes())
    out = list[str]()
    for i in range(len(plan)):
        digest = common.copy()
        epochs = plan.epochs[i] if plan.epochs else recipe.epochs
        order = plan.order[i] if recipe.estimator is None and recipe.batch_size < given.n else None  # else it is idle
        digest.update(f"{plan.weights[i]} {order} {epochs}".encode())
        epsilon = plan.epsilon[i] if plan.epsilon else recipe.epsilon
        if epsilon:
            digest.update(f"{float(epsilon)} {recipe.adversary()} {recipe.attack_box}".encode())
        for part in (plan.kept, plan.emphasis, plan.labels):
            digest.update(b"-" if part is None else part[i].numpy().tobytes())
        out.append(digest.hexdigest()[:16])
    return tuple(out)


def _plainly(recipe: Recipe, n: int) -> str:
    """The settings that matter, however they were spelt."""
    if recipe.estimator is not None:
        return f"{recipe.estimator!r} {recipe.inputs}"
    shape: Any = recipe.hidden
    if recipe.module is not None:
        try:
            shape = describe(recipe.module)
        except ModelError:
            shape = repr(recipe.module)
        shape = f"{shape} {next(recipe.module.parameters()).dtype}"
    loop = min(int(recipe.batch_size), n), float(recipe.lr), float(recipe.weight_decay), float(recipe.adam_eps)
    return f"{shape} {loop}" + (f" {recipe.optimizer}" if recipe.optimizer != "adam" else "")


def _pool(pool: Sequence[int] | None, n: int, seed: int) -> Tensor:
    if pool is None:
        return torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    rows = torch.as_tensor(np.asarray(pool), dtype=torch.int64)
    if len(rows) != len(set(map(int, pool))) or bool(((rows < 0) | (rows >= n)).any()):
        raise SettingError(f"pool must hold different positions of rows between 0 and {n - 1}")
    return rows


def _networks(group: RetrainJob, given: BaseRun, x: Tensor, bar: Progress) -> ModelStack:
    """The trained networks of one group."""
    recipe, labels = group.recipe, given.labels
    if not group.last_layer:
        return recipe.train(x, labels, given.classes, group.plan, bar)
    # Only the last layer is trained: a linear model on what the layers below make of the rows.
    base = recipe.train(x, labels, given.classes, Variation((given.seed,), (given.seed,)), Progress(False, ""))
    if not isinstance(base, Stack) or len(base.sizes) < 3:
        raise SettingError("the family 'last_layer' needs a network of Linear and ReLU layers in turn")
    with torch.no_grad():
        features = base.hidden(x.to(base.theta.dtype))[0].clone()
    with torch.device("meta"):
        head = nn.Sequential(nn.Linear(base.sizes[-2], base.sizes[-1], dtype=base.theta.dtype)).to_empty(device="cpu")
    heads = fit_stack(head, recipe.start(head), features, labels, group.plan, recipe, bar)
    whole = Stack(base.sizes, len(group.plan), base.theta.dtype)
    tensors = {name: v.expand(len(group.plan), *v.shape[1:]) for name, v in base.state().items()}
    last = list(tensors)[-2:]
    whole.load({**tensors, **dict(zip(last, heads.state().values(), strict=True))})
    return whole


# ---- estimators


@dataclass(frozen=True)
class _Job:
    """One estimator to fit: all a worker process needs."""

    recipe: Recipe
    X: pd.DataFrame
    y: "pd.Series[Any]"
    schema: Schema
    names: list[Any]
    seed: int

    def __call__(self) -> Model:
        return fitted_estimator(self.recipe, self.X, self.y, self.schema, self.names, self.seed)


def _estimators(
    plan: Variation,
    given: BaseRun,
    X: pd.DataFrame,
    y: "pd.Series[Any]",
    schema: Schema,
    names: list[Any],
    workers: int,
) -> tuple[Model, ...]:
    """Clones of the estimator; the plan says which rows, labels and seed a clone gets."""
    jobs = list[_Job]()
    for i in range(len(plan)):
        rows = np.arange(len(X))
        if plan.kept is not None:
            rows = np.flatnonzero(plan.kept[i].numpy())
        if plan.emphasis is not None:
            rows = np.repeat(rows, plan.emphasis[i].long().numpy())
        outcome = y if plan.labels is None else pd.Series(np.array(names)[plan.labels[i].numpy()], index=y.index)
        part = X.iloc[rows]
        jobs.append(_Job(given.recipe, part, outcome.iloc[rows], schema, names, plan.weights[i]))
    if workers > 1:
        with ProcessPoolExecutor(min(workers, len(jobs))) as processes:
            return tuple(processes.map(_run, jobs))
    return tuple(_run(job) for job in jobs)


def _run(job: _Job) -> Model:
    return job()
