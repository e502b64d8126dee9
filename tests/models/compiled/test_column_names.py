"""Columns by name: fewer, in another order, or lacking."""

from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import holdfast as hf
from support.compiled import Maker, check

torch.set_num_threads(1)


UNORDERED: dict[str, Maker] = {
    "logistic": lambda: LogisticRegression(),
    "scaled": lambda: make_pipeline("passthrough", StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(3, random_state=0),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=3, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1),
}


def people(rows: int = 150) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(rows, 3)) * [1, 10, 100], columns=["a", "b c", "d"])
    table["id"] = np.arange(rows)
    return table, (table["a"] + table["b c"] / 5 - table["d"] / 100 > 0).astype(int)


@pytest.mark.parametrize("name", UNORDERED)
def test_a_model_of_fewer_columns_or_in_another_order(name: str) -> None:
    table, y = people()
    some = table[["d", "a", "b c"]]
    made = UNORDERED[name]().fit(some, y)
    model = hf.Model.of(made, hf.Schema.infer(table))
    check(model, table)
    assert (model.predict(table) == made.predict(some)).all()
    cfs = hf.GrowingSpheres().explain(model, table.head(4), 1)
    assert (made.predict(cfs.to_frame()[some.columns][cfs.found]) == 1).all()


@pytest.mark.parametrize("by", [["d", "a"], [2, 0], slice("a", "b c")])
def test_columns_that_a_model_was_trained_on_but_does_not_read(by: Any) -> None:
    table, y = people()
    for rest in ("drop", "passthrough"):
        made = make_pipeline(
            ColumnTransformer([("s", StandardScaler(), by)], remainder=rest), LogisticRegression()
        )
        made.fit(table, y)
        check(hf.Model.of(made, hf.Schema.infer(table[["id", "d", "b c", "a"]])), table)
        small = table[["d", "b c", "a"]]
        if rest == "drop":
            model = hf.Model.of(made, hf.Schema.infer(small))
            check(model, small)
            assert (model.predict(small) == made.predict(table)).all()
        else:
            with pytest.raises(
                hf.HoldfastError,
                match=r"needs 1 column\(s\) that the schema lacks: 'id'; infer the",
            ):
                hf.Model.of(made, hf.Schema.infer(small))


@pytest.mark.parametrize("name", UNORDERED)
def test_a_model_says_which_columns_the_schema_lacks(name: str) -> None:
    table, y = people()
    made = UNORDERED[name]().fit(table[["d", "a", "id"]], y)
    with pytest.raises(
        hf.HoldfastError, match=r"needs 2 column\(s\) that the schema lacks: 'd', 'id'; infer"
    ):
        hf.Model.of(made, hf.Schema.infer(table[["a"]]))
