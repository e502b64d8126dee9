"""Banks of every kind of model in one file, and files that lie."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from safetensors.torch import load_file, save_file
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from xgboost import XGBClassifier, XGBRegressor

import holdfast as hf
from holdfast._core.seal import sealed
from holdfast.errors import FileError, ModelError
from holdfast.models.formats import safetensors, sandbox
from holdfast.retraining import store
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.recipe import Recipe
from support.households import NUMBERS, SCHEMA, WEALTH, N, X, Y, piped
from support.versions import FILES_HOLD_HISTOGRAMS

torch.set_num_threads(1)
FRAME = X.assign(home=X.home.astype("category"))
LEVELS = hf.Schema.infer(FRAME)
XGB = {"n_estimators": 3, "n_jobs": 1}
LGBM = {"n_estimators": 3, "n_jobs": 1, "min_child_samples": 5, "verbose": -1}
KINDS: dict[str, tuple[Any, Any, Any, hf.Schema]] = {
    "logistic": (piped(LogisticRegression()), X, Y, SCHEMA),
    "forest": (piped(RandomForestClassifier(3)), X, Y, SCHEMA),
    "encoded forest": (Recipe(estimator=RandomForestClassifier(3), inputs="encoded"), X, Y, SCHEMA),
    "histogram": (HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5), FRAME, Y, LEVELS),
    "xgboost": (XGBClassifier(**XGB, enable_categorical=True), FRAME, Y, LEVELS),
    "piped xgboost": (piped(XGBClassifier(**XGB)), X, Y, SCHEMA),
    "lightgbm": (LGBMClassifier(**LGBM), FRAME, Y, LEVELS),
    "piped lightgbm": (piped(LGBMClassifier(**LGBM)), X, Y, SCHEMA),
    "threshold": (
        FixedThresholdClassifier(piped(LogisticRegression()), threshold=0.3, pos_label="yes"),
        X,
        Y,
        SCHEMA,
    ),
    "three classes": (piped(XGBClassifier(**XGB)), X, pd.Series(np.arange(N) % 3, X.index), SCHEMA),
    "three classes of lightgbm": (
        piped(LGBMClassifier(**LGBM)),
        X,
        pd.Series(list("abc" * 30), X.index),
        SCHEMA,
    ),
    "forest of numbers": (RandomForestRegressor(3), NUMBERS, WEALTH, hf.Schema.infer(NUMBERS)),
    "xgboost of numbers": (XGBRegressor(**XGB), NUMBERS, WEALTH, hf.Schema.infer(NUMBERS)),
    "lightgbm of numbers": (LGBMRegressor(**LGBM), NUMBERS, WEALTH, hf.Schema.infer(NUMBERS)),
}


@pytest.fixture(autouse=True)
def no_child(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are tried out in this process: a child does the same and takes seconds."""

    def here(models: Any) -> None:
        for kind, data in models:
            store.READERS[kind].try_out(data)

    if "child" not in request.node.name:
        monkeypatch.setattr(sandbox, "try_all_in_child", here)


def made(kind: str, **settings: Any) -> ModelBank:
    recipe, table, outcome, schema = KINDS[kind]
    return ModelBank.retrain(
        recipe,
        table,
        outcome,
        schema,
        **({"families": {"retrain": 1, "seed_and_order": 1}} | settings),
    )


def same(back: ModelBank, bank: ModelBank, table: pd.DataFrame) -> None:
    assert torch.equal(back.scores(table), bank.scores(table))
    assert back.fingerprint() == bank.fingerprint()
    assert back.origins() == bank.origins()
    assert back.family.tolist() == bank.family.tolist()
    assert (back.classes, back.seed) == (bank.classes, bank.seed)
    assert back.schema.fingerprint == bank.schema.fingerprint
    assert repr(back) == repr(bank)
    for i in range(len(bank)):
        assert (back.model(i).predict(table) == bank.model(i).predict(table)).all()
        assert back.model(i).conversion == bank.model(i).conversion


@pytest.mark.parametrize("kind", KINDS)
def test_files_round_trip(kind: str, tmp_path: Path) -> None:
    if kind == "histogram" and not FILES_HOLD_HISTOGRAMS:
        pytest.skip("before scikit-learn 1.9 no file can hold this class")
    bank = made(kind)
    table = KINDS[kind][1]
    bank.save(tmp_path / "bank")
    back = ModelBank.load(tmp_path / "bank")
    same(back, bank, table)
    assert back.recipe is not None
    again = ModelBank.retrain(
        back.recipe, *KINDS[kind][1:], families={"retrain": 1}, classes=bank.classes
    )
    assert torch.equal(again.scores(table), bank.scores(table)[:1])
    assert again.origins() == bank.origins()[:1]


def test_classes_in_another_order(tmp_path: Path) -> None:
    weighted = piped(LogisticRegression(class_weight={"no": 1.0, "yes": 3.0}))
    for recipe in (weighted, piped(XGBClassifier(**XGB)), piped(LGBMClassifier(**LGBM))):
        bank = ModelBank.retrain(
            recipe, X, Y, SCHEMA, families={"retrain": 1}, classes=["yes", "no"]
        )
        bank.save(tmp_path / "bank")
        same(ModelBank.load(tmp_path / "bank"), bank, X)


def test_all_kinds_in_one_file_tried_in_a_child(tmp_path: Path) -> None:
    nets = ModelBank.retrain(Recipe(hidden=(3,), epochs=1), X, Y, SCHEMA, families={"seed": 2})
    tanh = nn.Sequential(nn.Linear(SCHEMA.width, 3), nn.Tanh(), nn.Linear(3, 2))
    single = ModelBank.of(
        [tanh, piped(LogisticRegression()).fit(X, Y)], schema=SCHEMA, classes=["no", "yes"]
    )
    each = [
        made(kind, families={"retrain": 1})
        for kind in ("piped xgboost", "piped lightgbm", "forest")
    ]
    bank = nets.join(*each, single)
    bank.save(tmp_path / "bank")
    same(ModelBank.load(tmp_path / "bank"), bank, X)


def test_bare_boosters(tmp_path: Path) -> None:
    numbers = (Y == "yes").astype(int)
    booster = XGBClassifier(**XGB).fit(NUMBERS.assign(home=1.0), numbers).get_booster()
    plain = hf.Schema.infer(NUMBERS.assign(home=1.0))
    bare = ModelBank.of(booster, schema=plain, classes=["no", "yes"])
    bare.save(tmp_path / "bare")
    assert ModelBank.load(tmp_path / "bare").fingerprint() == bare.fingerprint()


def test_a_search_is_saved_as_what_it_found(tmp_path: Path) -> None:
    search = GridSearchCV(piped(LogisticRegression()), {"logisticregression__C": [0.1, 1.0]}, cv=2)
    bank = ModelBank.retrain(search, X, Y, SCHEMA, families={"retrain": 1})
    with pytest.warns(UserWarning, match="the file holds the models, but not the recipe"):
        bank.save(tmp_path / "bank")
    back = ModelBank.load(tmp_path / "bank")
    assert back.recipe is None
    assert torch.equal(back.scores(X), bank.scores(X))


def test_what_cannot_be_saved_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    def ratio(table: Any) -> Any:
        return 1 / (1 + np.exp(3 - table["income"].to_numpy() / 1000))

    own = make_pipeline(
        FunctionTransformer(lambda table: table[["income", "debt"]]), LogisticRegression()
    ).fit(X, Y)
    log = piped(XGBClassifier(n_estimators=2, objective="binary:logitraw")).fit(
        X, (Y == "yes").astype(int)
    )
    for model, why in (
        (hf.Model.of(ratio, SCHEMA), "a function cannot be written down"),
        (hf.Model.of(own, SCHEMA), "LogisticRegression in a Pipeline.*cannot be saved"),
        (hf.Model.of(log, SCHEMA), "its objective is 'binary:logitraw'"),
    ):
        with pytest.raises(ModelError, match=why):
            ModelBank.of([model]).save(tmp_path / "bank")
    assert not list(tmp_path.iterdir())


# ---- files that lie


Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("banks") / "bank"
    kinds = ("piped xgboost", "forest", "piped lightgbm")
    banks = [made(kind, families={"retrain": 2}) for kind in kinds]
    banks[0].join(*banks[1:]).save(path)
    return path


def content_of(path: Path) -> dict[str, Any]:
    return json.loads(safetensors.metadata_of(path)["holdfast_bank"])


def written(
    path: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any], digest: str = ""
) -> Path:
    content = sealed("bank", 1, content, safetensors.in_bytes(tensors))
    if digest:
        content["digest"] = digest
    save_file(tensors, path, metadata={"holdfast_bank": json.dumps(content)})
    return path


def test_cut_off_files(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    bad = tmp_path / "bad"
    for size in (0, 7, 100, len(data) // 3, len(data) - 1):
        bad.write_bytes(data[:size])
        with pytest.raises(FileError, match="not a readable bank"):
            ModelBank.load(bad)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["groups"][0].update(models=3),
        lambda c: c["groups"][0].update(models=1),
        lambda c: c["groups"][0].update(origins=["only one"]),
        lambda c: c["groups"][0]["how"].pop(),
        lambda c: c["groups"][0]["how"].append(c["groups"][0]["how"][0]),
        lambda c: c["groups"][0].pop("how"),
        lambda c: c["groups"][0].update(how=3),
        lambda c: c["groups"][0]["how"][0].update(inputs="rows"),
        lambda c: c["groups"][0]["how"][0].update(outputs="value"),
        lambda c: c["groups"][2]["how"][0].update(learnt=["a"]),
        lambda c: c["groups"][0]["how"][0].update(torch={"architecture": []}),
        lambda c: c.update(classes=["a", "b", "c"]),
        lambda c: c["recipe"]["written"].update(booster="os.system"),
        lambda c: c["recipe"]["written"].update(settings={"objective": {"a": 1}}),
        lambda c: c["recipe"].update(written=None),
    ],
)
def test_files_that_contradict_themselves(whole: Path, tmp_path: Path, change: Change) -> None:
    content = content_of(whole)
    change(content)
    with pytest.raises(FileError, match="not a readable bank"):
        ModelBank.load(written(tmp_path / "bad", load_file(whole), content))


def test_models_that_were_swapped_or_damaged(whole: Path, tmp_path: Path) -> None:
    tensors = load_file(whole)
    content = content_of(whole)
    assert len(ModelBank.load(whole)) == 6
    xgb = "0/0/xgboost"
    forest = "1/0/skops"
    lgbm = "2/0/lightgbm"
    broken = tensors[xgb].clone()
    broken[200:260] = 7
    for changed in (
        {xgb: tensors[lgbm].clone()},
        {forest: tensors[xgb].clone()},
        {lgbm: tensors[forest].clone()},
        {xgb: tensors[xgb][:-9].clone()},
        {xgb: broken},
        {xgb: torch.zeros(0, dtype=torch.uint8)},
        {xgb: tensors[xgb].float()},
        {"0/0/pickle": tensors[xgb].clone()},
        {"0/0/lightgbm": tensors[lgbm].clone()},
    ):
        with pytest.raises(FileError, match="not a readable bank"):
            ModelBank.load(written(tmp_path / "bad", tensors | changed, content))
    broken = tensors[forest].clone()
    broken[-1] ^= 1
    with pytest.raises(FileError, match="its content is not as it was written"):
        ModelBank.load(
            written(tmp_path / "bad", tensors | {forest: broken}, content, content["digest"])
        )
    for name in tensors:
        with pytest.raises(FileError, match="not a readable bank"):
            ModelBank.load(
                written(tmp_path / "bad", {k: v for k, v in tensors.items() if k != name}, content)
            )


def test_a_type_that_is_not_on_the_list_is_never_made(tmp_path: Path, whole: Path) -> None:
    import skops.io

    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "went_off",))

    tensors = load_file(whole)
    content = content_of(whole)
    data = skops.io.dumps(piped(LogisticRegression()).fit(X, Y).set_params(memory=None))
    evil = data.replace(b"sklearn.linear_model._logistic", b"holdfast.linear_model._logisti")
    tensors["1/0/skops"] = torch.frombuffer(bytearray(evil), dtype=torch.uint8)
    with pytest.raises(FileError, match="not a readable bank"):
        ModelBank.load(written(tmp_path / "bad", tensors, content))
    (tmp_path / "bad").write_bytes(__import__("pickle").dumps(Bomb()))
    with pytest.raises(FileError):
        ModelBank.load(tmp_path / "bad")
    assert not (tmp_path / "went_off").exists()
