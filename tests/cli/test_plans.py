"""`holdfast plans` from the outside: from a model file and its training rows to plans."""

import json
from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import holdfast as hf
from support.terminal import refused, run

torch.set_num_threads(1)
# Warnings are notes on stderr here, which the tests look at.
pytestmark = [
    pytest.mark.filterwarnings(f"default:{start}")
    for start in ("an XGBoost file", "columns that the model")
]
FEW = "guide=20,calibration=40,audit=50"
LEVEL = ("--hold", "0.8", "--models", FEW)


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"income": rng.normal(50, 10, n).round(1), "years": rng.integers(0, 20, n)})
    X["home"] = rng.choice(["own", "rent"], n)
    score = (
        (X["income"] - 50) / 10
        + (X["years"] - 10) / 10
        + (X["home"] == "own")
        + rng.normal(0, 0.3, n)
    )
    return X.assign(
        worth=(100 * score).round(), outcome=np.where(score > 0.5, "approved", "denied")
    )


TRAIN = table(240, 0)
PEOPLE = table(60, 1)
X = TRAIN[["income", "years", "home"]]
Y = TRAIN["outcome"]
LEVELS = X.astype({"home": "category"})
NUMBERS = (Y == "approved").astype(int)


def piped(estimator: object) -> object:
    encode = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["home"]), remainder="passthrough"
    )
    return make_pipeline(encode, estimator)


def write_xgboost(path: Path) -> None:
    settings = {
        "n_estimators": 8,
        "max_depth": 2,
        "learning_rate": 0.2,
        "n_jobs": 1,
        "enable_categorical": True,
    }
    xgboost.XGBClassifier(**settings).fit(LEVELS, NUMBERS).save_model(path)


def write_lightgbm(path: Path) -> None:
    settings = {"n_estimators": 8, "num_leaves": 4, "n_jobs": 1, "verbose": -1}
    lightgbm.LGBMClassifier(**settings).fit(LEVELS, NUMBERS).booster_.save_model(path)


def write_skops(path: Path) -> None:
    skops.io.dump(piped(LogisticRegression()).fit(X, Y), path)


def write_safetensors(path: Path) -> None:
    names = ["denied", "approved"]
    hf.Recipe(hidden=(4,), epochs=20, lr=0.02).fit(X, Y, hf.Schema.infer(X), classes=names).save(
        path
    )


FILES: dict[str, Callable[[Path], None]] = {
    "model.ubj": write_xgboost,
    "model.txt": write_lightgbm,
    "model.skops": write_skops,
    "model.safetensors": write_safetensors,
}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that all of this is about."""
    at = tmp_path_factory.mktemp("plans")
    TRAIN.drop(columns="worth").to_csv(at / "train.csv", index=False)
    PEOPLE[PEOPLE["outcome"] == "denied"].drop(columns=["outcome", "worth"]).head(6).to_csv(
        at / "people.csv", index=False
    )
    for name, write in FILES.items():
        write(at / name)
    hf.Recipe(hidden=(4,), epochs=20, lr=0.02).save(at / "network.toml")
    return at


def asked(room: Path, model: str, *more: object) -> tuple[object, ...]:
    about = ("--data", room / "train.csv", "--outcome", "outcome", "--target", "approved")
    return "plans", room / "people.csv", "--model", room / model, *about, *LEVEL, *more


NAMED = ("--classes", "denied,approved")  # of a booster, which knows its classes as 0 and 1
ASKED = {
    "model.ubj": NAMED,
    "model.txt": NAMED,
    "model.skops": (),
    "model.safetensors": ("--recipe", "network.toml"),
}
SAID = {
    "model.ubj": "learning rate 0.2 scores the training rows most alike (apart by 0 in the mean)"
}


@pytest.mark.parametrize("model", FILES)
def test_from_a_model_file_to_plans(
    model: str, room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(room)
    out = tmp_path / "plans.parquet"
    ran = run(
        *asked(room, model, *ASKED[model], "--fixed", "years", "--up", "income", "--out", out)
    )
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "retraining 110 models (20 guide, 40 calibration, 50 audit)\n" in ran.err
    assert "retrained 110 models in" in ran.err
    assert SAID.get(model, "") in ran.err
    plans = hf.Plans.load(out)
    assert ran.err.rstrip().endswith(plans.summary())
    assert len(plans) == len(plans.audit.held[0]) == 6
    assert plans.found.any()
    assert plans.hold == 0.8
    before = plans.cfs.before
    after = plans.cfs.after
    assert (before["years"] == after["years"]).all()
    assert (before["income"] <= after["income"]).all()
    assert plans.cfs.classes in (("denied", "approved"), ("approved", "denied"))


def network(room: Path, *more: object) -> tuple[object, ...]:
    """What needs no child process to load and is retrained at once."""
    return asked(room, "model.safetensors", "--recipe", room / "network.toml", *more)


def test_a_pipe_gets_json_and_a_terminal_a_table(room: Path) -> None:
    piped_out = run(*network(room, "--quiet"))
    assert (piped_out.code, piped_out.err) == (0, "")
    told = json.loads(piped_out.out)
    assert (told["hold"], told["judges"], len(told["people"])) == (0.8, 50, 6)
    assert told["asked"] == "approved"
    shown = run(*network(room, "--quiet"), terminal=True)
    assert shown.code == 0
    assert shown.out.startswith("person")
    assert told["summary"] in shown.out
    assert max(map(len, shown.out.splitlines()[:-2])) <= 120


def test_saved_folders_give_the_same_plans_without_model_and_data(
    room: Path, tmp_path: Path
) -> None:
    files = (
        "--report",
        tmp_path / "page.html",
        "--cache",
        tmp_path / "cache",
        "--save",
        tmp_path / "folder",
    )
    first = run(*network(room, *files, "--out", tmp_path / "first.json"))
    assert first.code == 0, first.err
    assert "Plans that hold" in (tmp_path / "page.html").read_text(encoding="utf-8")
    again = (
        "plans",
        room / "people.csv",
        "--from",
        tmp_path / "folder",
        "--target",
        "approved",
        "--quiet",
    )
    second = run(*again, "--out", tmp_path / "second.json")
    assert (second.code, second.err) == (0, "")
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()
    other = run(*again[:-2], "denied", "--quiet")
    assert other.code == 0, other.err
    assert "already met" in {line["status"] for line in json.loads(other.out)["people"]}
    refused(run(*again, "--hold", "0.9"), "--from", "--hold has no effect")
    third = run(*network(room, "--cache", tmp_path / "cache", "--out", tmp_path / "third.json"))
    assert third.code == 0
    assert "as far as" in third.err
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "third.json").read_bytes()


def test_left_out_the_target_is_any_other_class_and_the_loop_the_usual_one(
    room: Path, tmp_path: Path
) -> None:
    command = [
        word for word in asked(room, "model.safetensors") if word not in ("--target", "approved")
    ]
    ran = run(*command, "--out", tmp_path / "plans.parquet", "--strict")
    assert (
        "does not say how it was trained; it is assumed to be 50 epochs of adam at 0.001" in ran.err
    )
    plans = hf.Plans.load(tmp_path / "plans.parquet")
    assert ran.code == (0 if plans.certified.all() else 3)
    assert plans.cfs.run.target == "any other class"


def test_regression_models_get_a_range_and_columns_they_do_not_take_are_left_out(
    room: Path, tmp_path: Path
) -> None:
    model = piped(LinearRegression()).fit(X, TRAIN["worth"])
    skops.io.dump(model, tmp_path / "worth.skops")
    TRAIN.assign(year=np.arange(len(TRAIN)) // 25).to_csv(tmp_path / "train.csv", index=False)
    about = ("--data", tmp_path / "train.csv", "--outcome", "worth", "--time", "year", *LEVEL)
    command = (
        "plans",
        room / "people.csv",
        "--model",
        tmp_path / "worth.skops",
        *about,
        "--target",
        "50..",
    )
    ran = run(*command, "--out", tmp_path / "plans.parquet")
    assert ran.code == 0, ran.err
    assert "columns that the model does not take are left out: ['outcome']" in ran.err
    plans = hf.Plans.load(tmp_path / "plans.parquet")
    assert (model.predict(plans.to_frame()[plans.found]) >= 50).all()
    assert plans.cfs.schema.names == ["income", "years", "home"]


def test_what_is_wrong_is_said_before_the_work(room: Path, tmp_path: Path) -> None:
    people = ("plans", room / "people.csv")
    refused(run(*people), "--model FILE and --data FILE")
    about = (*people, "--model", room / "model.safetensors", "--data", room / "train.csv")
    refused(run(*about), "--outcome COLUMN")
    refused(run(*about, "--outcome", "outcom"), "no column 'outcom'", "did you mean 'outcome'")
    about = (*about, "--outcome", "outcome", "--target")
    refused(run(*about, "approve", "--quiet"), "approve", "did you mean 'approved'")
    about = (*about, "approved")
    refused(run(*about, "--fixed", "yeers"), "yeers", "did you mean 'years'")
    refused(run(*about, "--time", "when"), "no column 'when'")
    refused(run(*about, "--hold", "1.5"), "1.5")
    refused(
        run(*about, "--hold", "0.99", "--models", "calibration=60"),
        "at least 299",
        "'calibration': 60",
    )
    refused(run(*about, "--models", "judge=3"), "no part 'judge'")
    refused(run(*about, "--models", "audit"), "--models takes NAME=COUNT")
    refused(run(*about, "--out", tmp_path / "plans.txt"), "plans.txt", ".csv")
    refused(run(*about, "--report", tmp_path / "none" / "page.html"), "there is no directory")
    refused(run(*about, "--save", tmp_path / "none" / "folder"), "there is no directory")
    refused(run(*people, "--from", tmp_path / "nowhere"), "no Recourse at")
    named = ("--classes", "no,yes", "--target", "yes")
    refused(run(*asked(room, "model.safetensors", *named)), "'approved'", "['no', 'yes']")


def test_models_that_cannot_be_made_again_need_a_recipe(room: Path, tmp_path: Path) -> None:
    from skl2onnx import to_onnx

    numbers = X[["income", "years"]].to_numpy(np.float32)
    onnx = to_onnx(
        LogisticRegression().fit(numbers, NUMBERS), numbers[:1], options={"zipmap": False}
    )
    (tmp_path / "model.onnx").write_bytes(onnx.SerializeToString())
    X[["income", "years"]].assign(outcome=NUMBERS).to_csv(tmp_path / "train.csv", index=False)
    about = ("--data", tmp_path / "train.csv", "--outcome", "outcome", "--target", "1", *LEVEL)
    command = ("plans", room / "people.csv", "--model", tmp_path / "model.onnx", *about)
    refused(
        run(*command, "--quiet"), "cannot make the graph of an ONNX file again", "--recipe FILE"
    )
    hf.Recipe(estimator=LogisticRegression(), inputs="frame").save(tmp_path / "recipe.toml")
    ran = run(*command, "--recipe", tmp_path / "recipe.toml")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["asked"] == "1"
