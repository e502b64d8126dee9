"""Small models and a mixed table; n = 7 rows, so that n differs from every other size."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn

import holdfast as hf
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast.methods._latent import LatentMethod
from holdfast.nn.architecture import mlp
from holdfast.problem import SearchProblem, TimeBudget
from holdfast.target import BoundTarget, TargetLike

N = 7


def mixed_table(rows: int, seed: int = 0) -> pd.DataFrame:
    """All kinds of columns, odd dtypes, a text index, and columns in an order of their own."""
    rng = np.random.default_rng(seed)
    opened = rng.integers(0, 6, rows)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, rows).astype("int8"),
            "income": rng.normal(3000, 900, rows).round(2).clip(200),
            "sex": rng.choice(["f", "m"], rows),
            "owner": rng.random(rows) > 0.5,
            "school": pd.Categorical(
                rng.choice(["low", "mid", "high"], rows), ["low", "mid", "high"], ordered=True
            ),
            "job": pd.Categorical(
                np.where(rng.random(rows) < 0.15, None, rng.choice(["a", "b", "c"], rows))
            ),
            "open": opened,
            "total": opened + rng.integers(0, 5, rows),
            "ratio": rng.random(rows).astype("float32"),
            "visits": pd.array(rng.integers(0, 9, rows), dtype="Int64"),
        },
        index=[f"p{i}" for i in range(rows)],
    )


def mixed_schema(table: pd.DataFrame, **settings: object) -> hf.Schema:
    base: dict[str, object] = {
        "fixed": ["sex"],
        "up": ["age"],
        "down": ["visits"],
        "bounds": {"income": (0, 8000), "ratio": (0, 1)},
        "allowed": {"job": ["a", "b"]},
        "rules": ["open <= total"],
        "max_changes": 5,
    }
    return hf.Schema.infer(table, **(base | settings))


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    """Weights from a generator of our own, so that importing tests never touches the global one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(
                torch.randn(p.shape, generator=generator, dtype=p.dtype)
                * (0.5 if p.ndim > 1 else 0.1)
            )
    return module.eval()


def points(n: int, d: int = 5, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def problem_of(
    model: hf.Model, x: torch.Tensor, target: TargetLike = 1, seed: int = 0
) -> SearchProblem:
    """The problem that `explain` would make of encoded rows, to follow a search step by step."""
    with model.eval_mode():
        goal = hf.Target.of(target).bind(model, model(x))
    return problem_with(goal, model, x, seed)


def problem_with(
    goal: BoundTarget, model: hf.Model, x: torch.Tensor, seed: int = 0
) -> SearchProblem:
    """The same for a goal that is bound already; there is no limit of time."""
    budget = TimeBudget(None, Progress(False, ""))
    return SearchProblem(model, x, goal, model.schema.feasible(x), RowRandom.of(seed, x), budget)


@dataclass(frozen=True)
class Latent:
    """A model on mixed columns, two of which cannot change."""

    table: pd.DataFrame
    schema: hf.Schema
    model: hf.Model

    @classmethod
    def of(cls, **settings: object) -> "Latent":
        table = mixed_table(200)
        schema = mixed_schema(table, fixed=["sex", "ratio"], **settings)
        return cls(
            table,
            schema,
            hf.Model.of(seeded(mlp(schema.width, (16,), 2)), schema, classes=["no", "yes"]),
        )

    def check_given(self, e: LatentMethod) -> hf.Counterfactuals:
        """The autoencoder is given what cannot change, which the answers keep."""
        fixed = self.schema.encoding().fixed
        assert torch.equal(e.autoencoder_.given, fixed.nonzero().squeeze(1))
        cfs = e.explain(
            self.model, self.table[(self.model.predict(self.table) == "no").to_numpy()], "yes"
        )
        assert cfs.found.mean() > 0.5
        assert torch.equal(cfs.x_cf[:, fixed], cfs.x[:, fixed])
        assert cfs.x_cf.isfinite().all()
        return cfs
