"""From a fitted model to plans that hold, for every kind of model; and a folder to start from."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import nn

import holdfast as hf
from holdfast.auditing.calibration import USUAL
from holdfast.errors import FileError, HoldfastError, SchemaError, SettingError
from holdfast.retraining.split import BankSplit

torch.set_num_threads(1)
RNG = np.random.default_rng(0)
N = 90
X = pd.DataFrame(
    {
        "income": RNG.normal(50, 10, N),
        "years": RNG.integers(0, 20, N),
        "home": RNG.choice(["own", "rent"], N),
    }
)
SCORE = (
    (X["income"] - 50) / 10 + (X["years"] - 10) / 10 + (X["home"] == "own") + RNG.normal(0, 0.3, N)
)
Y = pd.Series(np.where(SCORE > 0.5, "approved", "denied"))
WORTH = 100 * SCORE
NUMBERS = X[["income", "years"]]
SIZES = {"guide": 4, "calibration": 14, "audit": 16}  # 14 will do
FEW: dict[str, Any] = {"hold": 0.8, "banks": hf.Banks(family="retrain", models=SIZES, workers=1)}


def piped(estimator: object) -> Any:
    encode = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["home"]), remainder="passthrough"
    )
    return make_pipeline(encode, estimator)


def refused(recourse: hf.Recourse, rows: pd.DataFrame = X) -> pd.DataFrame:
    return rows[(recourse.model.predict(rows) == "denied").to_numpy()].head(4)


# ---- every kind of model


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2))


TREES = {"n_estimators": 4, "max_depth": 2, "n_jobs": 1}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "logistic": (lambda: LogisticRegression().fit(NUMBERS, Y), {}),
    "forest": (lambda: RandomForestClassifier(5, max_depth=3, random_state=0).fit(NUMBERS, Y), {}),
    "pipeline": (
        lambda: piped(HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=4)).fit(X, Y),
        {},
    ),
    "xgboost": (
        lambda: xgboost.XGBClassifier(**TREES).fit(NUMBERS, (Y == "approved").astype(int)),
        {"classes": ["denied", "approved"]},
    ),
    "lightgbm": (
        lambda: lightgbm.LGBMClassifier(n_estimators=4, num_leaves=4, n_jobs=1, verbose=-1).fit(
            NUMBERS, Y
        ),
        {},
    ),
    "recipe": (
        lambda: hf.Recipe(hidden=(4,), epochs=10, lr=0.05),
        {"classes": ["denied", "approved"]},
    ),
    "module": (module, {"classes": ["denied", "approved"]}),
    "model": (
        lambda: hf.Model.of(LogisticRegression().fit(NUMBERS, Y), hf.Schema.infer(NUMBERS)),
        {},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_from_a_fitted_model_to_certificates(kind: str) -> None:
    make, more = KINDS[kind]
    rows = X if kind == "pipeline" else NUMBERS
    recourse = hf.Recourse(make(), rows, Y, fixed=["years"], **more, **FEW)
    people = refused(recourse, rows)
    plans = recourse.plans(people, "approved")
    assert isinstance(plans, hf.Plans)
    assert set(plans.table()["status"]) <= {"found", "fragile", "not found", "impossible"}
    assert (plans.cfs.after["years"] == people["years"]).all()
    assert set(recourse.model.predict(plans.to_frame()[plans.cfs.answered])) <= {"approved"}
    by_hand = [
        recourse.bank.audit.model(i).predict(plans.to_frame()) == "approved" for i in range(16)
    ]
    expected = np.mean(by_hand, 0)[plans.cfs.answered]
    assert plans.survival[plans.cfs.answered].tolist() == pytest.approx(expected.tolist())
    # One family, three parts that have no model in common.
    assert [len(part) for part in recourse.bank] == [4, 14, 16]
    assert not recourse.bank.guide.members() & recourse.bank.audit.members()


def test_a_regression_model_and_a_range() -> None:
    recourse = hf.Recourse(piped(LinearRegression()).fit(X, WORTH), X, WORTH, **FEW)
    poor = X[recourse.model.predict(X) < 0].head(4)
    plans = recourse.plans(poor, hf.Target.between(60, None))
    assert plans.found.any()
    assert (recourse.model.predict(plans.to_frame()[plans.found]) >= 60).all()
    assert "at least 60" in plans.audit.asked
    costs = recourse.frontier(poor, hf.Target.between(60, None), holds=(0.5, 0.9)).costs()
    assert costs.columns.tolist() == [0.5, 0.9]
    assert (costs[0.5] <= costs[0.9].fillna(np.inf)).all()


def test_a_probability_is_asked_of_every_retrained_model() -> None:
    recourse = hf.Recourse(LogisticRegression().fit(NUMBERS, Y), NUMBERS, Y, **FEW)
    target = hf.Target("approved", probability=0.8)
    plans = recourse.plans(refused(recourse, NUMBERS), target)
    rows = plans.to_frame()
    place = recourse.model.classes.index("approved")
    shares = [
        recourse.bank.audit.model(i).wrapped.predict_proba(rows)[:, place] > 0.8 for i in range(16)
    ]
    assert (
        plans.survival[plans.cfs.answered].tolist()
        == np.mean(shares, 0)[plans.cfs.answered].tolist()
    )


def test_outcomes_may_be_those_that_the_model_learnt() -> None:
    numbers = (Y == "approved").astype(int)
    fitted = LogisticRegression().fit(NUMBERS, numbers)
    banks = [
        hf.Recourse(fitted, NUMBERS, y, classes=["denied", "approved"], **FEW).train().bank
        for y in (numbers, Y)
    ]
    assert banks[0].audit.fingerprint() == banks[1].audit.fingerprint()


# ---- parts that are ready-made


@pytest.fixture(scope="module")
def network() -> hf.Recourse:
    """The quickest there is."""
    recipe = hf.Recipe(hidden=(), epochs=10, lr=0.1)
    return hf.Recourse(recipe, NUMBERS, Y, classes=["denied", "approved"], **FEW).train()


def test_a_bank_that_is_there_is_split_or_taken_as_it_is(network: hf.Recourse) -> None:
    people = refused(network, NUMBERS)
    given: dict[str, Any] = {"X": NUMBERS, "hold": 0.8}
    first = network.plans(people, "approved")
    again = hf.Recourse(network.model, banks=hf.Banks(ready=network.bank), **given).plans(
        people, "approved"
    )
    assert again.likeness is not None
    assert again.likeness.alike
    assert not again.likeness.made_again
    assert again.table().equals(first.table())
    whole = network.bank.guide.join(network.bank.calibration, network.bank.audit)
    banks = hf.Banks(ready=whole, models=SIZES)
    parts = hf.Recourse(network.model, banks=banks, **given).train().bank
    assert isinstance(parts, BankSplit)
    assert [len(part) for part in parts] == [4, 14, 16]
    assert frozenset[str]().union(*(part.members() for part in parts)) == whole.members()


def test_a_method_that_is_there_keeps_its_settings(network: hf.Recourse) -> None:
    search = hf.SurvivalSearch(network.bank.guide, safety=1.5)
    banks = hf.Banks(ready=network.bank)
    plans = hf.Recourse(network.model, banks=banks, method=search).plans(
        refused(network, NUMBERS), "approved"
    )
    assert "safety=1.5" in plans.cfs.run.settings
    other = hf.Recourse(network.model, banks=banks, method=hf.MinCost())
    assert other.plans(refused(network, NUMBERS), "approved").cfs.run.method == "MinCost"
    with pytest.raises(SettingError, match="a frontier needs a SurvivalSearch"):
        other.frontier(refused(network, NUMBERS), "approved")


def test_a_time_column_makes_earlier_models_guide() -> None:
    rows = NUMBERS.assign(year=np.arange(N) // 30)
    clerk = LogisticRegression().fit(NUMBERS, Y)
    by_year = {**FEW, "banks": replace(FEW["banks"], time="year")}
    recourse = hf.Recourse(clerk, rows, Y, **by_year).train()
    assert recourse.schema.names == ["income", "years"]
    assert recourse.bank.guide.families == {"retrain": 2, "history": 2}
    assert recourse.bank.audit.families == {"retrain": 16}
    # Models of earlier data add to what the search must stay clear of, and no plan has less than
    # the usual margin.
    method = recourse.method
    assert isinstance(method, hf.SurvivalSearch)
    assert method.bank is recourse.bank.guide
    assert min(method.margins) == USUAL
    alone = hf.Recourse(clerk, NUMBERS, Y, **FEW).train().method
    assert isinstance(alone, hf.SurvivalSearch)
    assert min(alone.margins) < USUAL


def test_the_second_time_models_come_from_the_cache(tmp_path: Path) -> None:
    recipe = hf.Recipe(hidden=(), epochs=10, lr=0.1)
    kept = replace(FEW["banks"], cache=tmp_path)
    made = [
        hf.Recourse(recipe, NUMBERS, Y, classes=["denied", "approved"], hold=0.8, banks=kept)
        for _ in range(2)
    ]
    prints = [part.fingerprint() for part in made[0].train().bank]
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert files
    assert [part.fingerprint() for part in made[1].train().bank] == prints
    assert {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()
    } == files


# ---- what trains, and what does not


def test_nothing_is_trained_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline of boosted trees: everything but `train` and what needs it looks on."""
    codes = (Y == "approved").astype(int)
    fitted = piped(xgboost.XGBClassifier(**TREES)).fit(X, codes)
    made = list[int]()
    fit = xgboost.XGBClassifier.fit

    def counted(*given: Any, **more: Any) -> Any:
        made.append(1)
        return fit(*given, **more)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a model is retrained")

    with monkeypatch.context() as looking:
        looking.setattr(xgboost.XGBClassifier, "fit", counted)
        looking.setattr(hf.ModelBank, "retrain", never)
        recourse = hf.Recourse(fitted, X, codes, classes=["denied", "approved"], **FEW)
        assert repr(recourse).startswith("Recourse(XGBClassifier in a Pipeline, hold=0.8")
        assert recourse.describe().endswith("no model has been retrained yet")
        assert (recourse.kind, recourse.spread, recourse.is_trained) == ("retrain", 1.0, False)
        assert recourse.schema.names == ["income", "years", "home"]
        for name in ("bank", "trained", "method"):
            with pytest.raises(SettingError, match=r"call recourse\.train\(\)"):
                getattr(recourse, name)
        with pytest.raises(SettingError, match=r"call recourse\.train\(\)"):
            recourse.save("nowhere")
        with pytest.raises(HoldfastError, match="did you mean"):
            recourse.plans(X.head(2), "aproved")
        assert not made
    assert recourse.train() is recourse
    assert [len(part) for part in recourse.bank] == [4, 14, 16]
    monkeypatch.setattr(hf.ModelBank, "retrain", never)
    assert len(recourse.train().plans(X.head(2), "approved")) == 2


def test_no_model_is_trained_to_tell_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are asked for, and those made again on the same rows; with or without bars."""
    made = list[int]()
    retrain = hf.ModelBank.retrain

    def counted(*given: Any, **more: Any) -> hf.ModelBank:
        bank = retrain(*given, **more)
        made.append(len(bank))
        return bank

    monkeypatch.setattr(hf.ModelBank, "retrain", counted)
    clerk = LogisticRegression().fit(NUMBERS, Y)
    for progress in (False, True):
        hf.Recourse(clerk, NUMBERS, Y, progress=progress, **FEW).train()
    assert made == [16, 34] * 2


# ---- what it says


def test_it_says_what_it_does_and_how_long_that_took(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = hf.Recipe(hidden=(), epochs=3, lr=0.1)
    recourse = hf.Recourse(recipe, NUMBERS, Y, progress=True, classes=["denied", "approved"], **FEW)
    recourse.plans(refused(recourse, NUMBERS), "approved")
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "retraining 34 models (4 guide, 14 calibration, 16 audit)"
    assert lines[1].startswith("retrained 34 models in ")
    assert recourse.describe().splitlines()[1:3] == [
        "a plan holds for at least 80% of models retrained on rows drawn again from this table, "
        "with 95% confidence",
        lines[1],
    ]
    assert repr(recourse) == "Recourse(Sequential, hold=0.8, confidence=0.95)"


def test_a_network_that_does_not_say_how_it_was_trained_is_trained_as_usual() -> None:
    recourse = hf.Recourse(module(), NUMBERS, Y, classes=["denied", "approved"], **FEW)
    assert len(recourse.train().bank.guide) == 4
    told = "does not say how it was trained; it is assumed to be 50 epochs"
    assert told in recourse.trained.notes[0]


# ---- files


def saved_kinds() -> dict[str, hf.Recourse]:
    forest = RandomForestClassifier(3, max_depth=2, random_state=0).fit(NUMBERS, Y)
    few = {
        **FEW,
        "banks": replace(FEW["banks"], models={"guide": 3, "calibration": 14, "audit": 14}),
    }
    names = {"classes": ["denied", "approved"]}
    return {
        "network": hf.Recourse(hf.Recipe(hidden=(), epochs=10, lr=0.1), NUMBERS, Y, **names, **few),
        "forest": hf.Recourse(forest, NUMBERS, Y, **few),
    }


@pytest.mark.parametrize("kind", ["network", "forest"])
def test_a_folder_gives_the_same_plans_to_the_bit_and_runs_no_code(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recourse = saved_kinds()[kind]
    people = refused(recourse, NUMBERS)
    first = recourse.plans(people, "approved")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a pickle")

    for name in ("load", "loads", "Unpickler", "dump", "dumps"):
        monkeypatch.setattr(pickle, name, never)
    folder = recourse.save(tmp_path / "folder")
    started = hf.Recourse.load(folder)
    again = started.plans(people, "approved")
    assert again.to_json() == first.to_json()
    assert again.cfs.x_cf.equal(first.cfs.x_cf)
    assert again.audit.held.tolist() == first.audit.held.tolist()
    assert started.hold == 0.8


def test_a_folder_answers_for_any_target_and_can_be_replaced(
    network: hf.Recourse, tmp_path: Path
) -> None:
    folder = network.save(tmp_path / "folder")
    started = hf.Recourse.load(folder)
    assert [part.fingerprint() for part in started.bank] == [
        part.fingerprint() for part in network.bank
    ]
    assert len(started.plans(NUMBERS.head(3), "denied")) == 3
    assert started.save(folder) == folder
    again = hf.Recourse.load(folder)
    assert (
        again.plans(NUMBERS.head(3), "denied").to_json()
        == started.plans(NUMBERS.head(3), "denied").to_json()
    )


def test_parts_of_a_folder_are_read_when_they_are_needed(
    network: hf.Recourse, tmp_path: Path
) -> None:
    people = refused(network, NUMBERS)
    folder = network.save(tmp_path / "folder")
    started = hf.Recourse.load(folder, NUMBERS, Y)
    next(folder.glob("calibration-*.bank")).write_bytes(b"")
    method = started.method
    assert isinstance(method, hf.SurvivalSearch)
    assert method.bank.fingerprint() == network.bank.guide.fingerprint()
    with pytest.raises(FileError, match="calibration-"):
        started.plans(people, "approved")


def test_folders_that_are_none_are_refused(network: hf.Recourse, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no Recourse at"):
        hf.Recourse.load(tmp_path / "nowhere")
    folder = network.save(tmp_path / "folder")
    next(folder.glob("audit-*.bank")).unlink()
    with pytest.raises(FileError, match="has no part 'audit'"):
        hf.Recourse.load(folder)
    (folder / "recourse.json").write_text("{")
    with pytest.raises(FileError, match="damaged"):
        hf.Recourse.load(folder)


# ---- what is wrong


def test_what_is_wrong_is_said(network: hf.Recourse) -> None:
    fitted = LogisticRegression().fit(NUMBERS, Y)
    cases: list[tuple[type[HoldfastError], str, Any]] = [
        (
            SettingError,
            "must lie between|between 0 and 1",
            lambda: hf.Recourse(fitted, NUMBERS, Y, hold=1.2),
        ),
        (SettingError, "does not say what its columns are", lambda: hf.Recourse(fitted)),
        (
            SettingError,
            "needs X and y",
            lambda: hf.Recourse(hf.Model.of(fitted, hf.Schema.infer(NUMBERS))).train(),
        ),
        (
            SettingError,
            "no part 'judges'",
            lambda: hf.Banks(models={"judges": 3}),
        ),
        (
            SettingError,
            r"need at least 59 that choose, and that audit; models={'audit': 20} are too few",
            lambda: hf.Recourse(fitted, NUMBERS, Y, banks=hf.Banks(models={"audit": 20})),
        ),
        (
            SettingError,
            r"pass banks=hf.Banks\(groups=...\)",
            lambda: hf.Recourse(fitted, NUMBERS, Y, groups="person"),  # pyright: ignore
        ),
        (
            SettingError,
            r"takes no bank=.*banks=hf.Banks\(...\)",
            lambda: hf.Recourse(fitted, NUMBERS, Y, bank=network.bank),  # pyright: ignore
        ),
        (
            SchemaError,
            "did you mean 'years'",
            lambda: hf.Recourse(fitted, NUMBERS, Y, fixed=["yeers"]),
        ),
        (
            SettingError,
            "only fixed, up and down can be set",
            lambda: hf.Recourse(fitted, NUMBERS, Y, schema=hf.Schema.infer(NUMBERS), max_changes=1),
        ),
        (
            HoldfastError,
            "no class 'aproved'; did you mean",
            lambda: network.plans(NUMBERS.head(2), "aproved"),
        ),
        (
            SettingError,
            "holds must be shares",
            lambda: network.frontier(NUMBERS.head(2), "approved", holds=(2.0,)),
        ),
        (
            SettingError,
            "cannot make a function again",
            lambda: hf.Recourse(
                lambda rows: rows["income"].to_numpy() > 50.0, NUMBERS, Y, **FEW
            ).train(),
        ),
    ]
    for error, words, call in cases:
        with pytest.raises(error, match=words):
            call()


def test_plans_are_audited_as_their_answers_are(network: hf.Recourse) -> None:
    """The next release is asked about plans as they are."""
    plans = network.plans(refused(network).head(4), "approved")
    release = network.bank.audit.model(0)
    by_plans = hf.audit(plans, [release])
    assert by_plans.held.tolist() == hf.audit(plans.cfs, [release]).held.tolist()
