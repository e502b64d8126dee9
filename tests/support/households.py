"""Households with income, debt and home, who is granted a loan, and what each is worth."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import holdfast as hf

RNG = np.random.default_rng(3)
N = 90
X = pd.DataFrame(
    {
        "income": RNG.normal(3000, 800, N).round(),
        "debt": RNG.normal(500, 200, N).round(),
        "home": RNG.choice(["own", "rent", "none"], N),
    },
    index=[f"p{i}" for i in range(N)],
)
Y = pd.Series(
    np.where(X.income - 2 * X.debt + 300 * (X.home == "own") > 2000, "yes", "no"), index=X.index
)
SCHEMA = hf.Schema.infer(X)
NUMBERS = X[["income", "debt"]]
WEALTH = X.income - 2 * X.debt


def piped(estimator: Any) -> Any:
    """An estimator behind the encoding of these tables."""
    return make_pipeline(
        ColumnTransformer(
            [("home", OneHotEncoder(sparse_output=False), ["home"])], remainder=StandardScaler()
        ),
        estimator,
    )
