"""Model files of every kind: told by content, checked before they are loaded, and nothing run that
was not trusted."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.errors import FileError
from holdfast.models.formats import lightgbm as own_lightgbm
from holdfast.models.formats import xgboost as own_xgboost
from holdfast.nn.architecture import mlp
from support.model_files import (
    BY_JOB,
    CATEGORIES,
    L_TEXT,
    LIGHTGBM_NUMBERS,
    LOGISTIC,
    POSITIVE,
    RNG,
    SCHEMA,
    TABLE,
    THREE,
    TWO,
    X_JSON,
    X_UBJ,
    XGBOOST_NUMBERS,
)
from support.tables import seeded

pytestmark = pytest.mark.usefixtures("no_child")


X_NUMBER = bytes(
    xgboost.XGBRegressor(n_estimators=2, max_depth=2, objective="reg:tweedie")
    .fit(TABLE, POSITIVE)
    .get_booster()
    .save_raw()
)
L_NUMBER = (
    lightgbm.LGBMRegressor(
        n_estimators=2, reg_sqrt=True, num_leaves=4, min_child_samples=5, verbose=-1
    )
    .fit(TABLE, POSITIVE)
    .booster_.model_to_string()
)


def test_all_objectives_that_estimate_are_tried() -> None:
    assert set(XGBOOST_NUMBERS) == set(own_xgboost.NUMBERS)
    assert set(LIGHTGBM_NUMBERS) == set(own_lightgbm.NUMBERS)


def test_parameters_of_objectives_are_read_and_checked(tmp_path: Path) -> None:
    grown = lightgbm.train(
        {"objective": "quantile", "verbose": -1}, lightgbm.Dataset(TABLE, POSITIVE), 2
    )
    text = grown.model_to_string()
    (tmp_path / "m.txt").write_text(
        text.replace("objective=quantile", "objective=quantile sqrt alpha:0.3")
    )
    rooted = lightgbm.Booster(model_file=tmp_path / "m.txt").predict(TABLE)
    assert not np.allclose(rooted, grown.predict(TABLE))
    assert np.array_equal(hf.Model.load(tmp_path / "m.txt", SCHEMA).predict(TABLE), rooted)
    fitted = xgboost.XGBRegressor(
        objective="reg:quantileerror", quantile_alpha=0.3, n_estimators=2
    ).fit(TABLE, POSITIVE)
    content = json.loads(bytes(fitted.get_booster().save_raw("json")))
    for alpha, words in (
        ("[0.3,0.4]", "expected a number"),
        ("lots", "expected a number"),
        ("7", "cannot read"),
    ):
        content["learner"]["objective"]["quantile_loss_param"]["quantile_alpha"] = alpha
        (tmp_path / "m.json").write_text(json.dumps(content))
        with pytest.raises(FileError, match=words):
            hf.Model.load(tmp_path / "m.json", SCHEMA)
    both = xgboost.XGBRegressor(
        objective="reg:quantileerror", quantile_alpha=[0.3, 0.6], n_estimators=2
    )
    both.fit(TABLE, POSITIVE).save_model(tmp_path / "m.json")
    with pytest.raises(FileError, match="num_target = '2'"):
        hf.Model.load(tmp_path / "m.json", SCHEMA)


def holes(table: pd.DataFrame) -> pd.DataFrame:
    """The same with numbers missing here and there."""
    rng = np.random.default_rng(4)
    return table.assign(**{c: table[c].mask(rng.random(len(table)) < 0.2) for c in ("a", "b")})


MADE: dict[str, Callable[[], object]] = {
    "xgboost": lambda: xgboost.XGBClassifier(**DEEP),
    "xgboost forest": lambda: xgboost.XGBRFClassifier(**DEEP),
    "xgboost number": lambda: xgboost.XGBRegressor(**DEEP),
    "xgboost number forest": lambda: xgboost.XGBRFRegressor(**DEEP),
    "xgboost linear": lambda: xgboost.XGBClassifier(booster="gblinear", n_estimators=4, n_jobs=1),
    "lightgbm": lambda: lightgbm.LGBMClassifier(**LIGHT),
    "lightgbm number": lambda: lightgbm.LGBMRegressor(**LIGHT),
}
DEEP = {
    "n_estimators": 4,
    "max_depth": 3,
    "n_jobs": 1,
    "enable_categorical": True,
    "max_cat_to_onehot": 1,
}
LIGHT = {
    "n_estimators": 4,
    "num_leaves": 6,
    "min_child_samples": 5,
    "verbose": -1,
    "n_jobs": 1,
    "cat_smooth": 0,
}
TABLES = {
    "numbers": TABLE,
    "gaps": holes(TABLE),
    "categories": CATEGORIES,
    "two lists": CATEGORIES.assign(place=pd.Categorical(RNG.choice(["n", "s", "w"], len(TABLE)))),
    "whole numbers as categories": TABLE.assign(
        job=pd.Categorical(RNG.choice([1, 2, 10, -4], len(TABLE)))
    ),
    "all": holes(CATEGORIES),
    "array": TABLE,
}
# A linear booster takes plain numbers only.
TAKEN = [(m, t) for m in MADE for t in TABLES if m != "xgboost linear" or t in ("numbers", "array")]


@pytest.mark.parametrize(("name", "what"), TAKEN)
@pytest.mark.parametrize("turned", [False, True], ids=["same order", "another order"])
def test_files_of_trees_get_exact_copies(
    name: str, what: str, turned: bool, tmp_path: Path
) -> None:
    table = TABLES[what]
    path = tmp_path / "m.ubj"
    y = THREE if name in ("xgboost", "lightgbm") else BY_JOB if "job" in table else TWO
    fitted = MADE[name]().fit(table.to_numpy() if what == "array" else table, y)
    getattr(fitted, "booster_", fitted).save_model(path)
    seen = table[table.columns[::-1]] if turned and what != "array" else table
    schema = hf.Schema.infer(seen)
    model = hf.Model.load(path, schema)
    assert bool(model.conversion) == (name != "xgboost linear"), model.conversion.text
    assert not model.rejects_missing
    raw = {"raw_score": True} if "lightgbm" in name else {"output_margin": True}
    theirs = np.asarray(
        fitted.predict(table.to_numpy() if what == "array" else table, **raw), dtype=float
    )
    x = schema.encode(seen, torch.float64)
    with model.eval_mode():
        for mine in (model(x), model.score_frame(seen)):
            if model.is_regression:
                assert np.allclose(mine.squeeze(1), theirs, atol=1e-6)
                continue
            wanted = torch.tensor(theirs if theirs.ndim == 2 else np.stack([0 * theirs, theirs], 1))
            assert torch.allclose(torch.softmax(mine, 1), torch.softmax(wanted, 1), atol=1e-6)
    assert len(set(model.predict(seen))) > 1


def good_files(tmp_path: Path) -> dict[str, bytes]:
    hf.Model.of(seeded(mlp(3, (4,), 2)), SCHEMA).save(tmp_path / "good")
    return {
        "safetensors": (tmp_path / "good").read_bytes(),
        "skops": LOGISTIC,
        "json": X_JSON,
        "ubj": X_UBJ,
        "txt": L_TEXT.encode(),
    }


def test_files_cut_off_anywhere_are_refused(tmp_path: Path) -> None:
    for suffix, data in good_files(tmp_path).items():
        path = tmp_path / f"cut.{suffix}"
        for share in (0.0, 0.001, 0.01, 0.3, 0.6, 0.9):
            path.write_bytes(data[: int(share * len(data))])
            with pytest.raises(FileError):
                hf.Model.load(path, SCHEMA)


@given(
    st.sampled_from([X_JSON, X_UBJ, X_NUMBER, L_TEXT.encode(), L_NUMBER.encode()]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_damaged_files_of_trees_are_refused_or_load(
    data: bytes, edits: list[tuple[float, int]], insert: bool
) -> None:
    raw = bytearray(data)
    for place, byte in edits:
        at = int(place * (len(raw) - 1))
        raw[at : at if insert else at + 1] = bytes([byte])
    reader = own_lightgbm if data[:4] == b"tree" else own_xgboost
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = reader.load(bytes(raw), SCHEMA)
        except hf.HoldfastError:
            return
        scores = found.model.predict(TABLE)
    assert scores.shape[0] == len(TABLE)
    assert isinstance(found.model, xgboost.XGBClassifier | xgboost.XGBRegressor | lightgbm.Booster)
