"""Audits: certificates, tables done by hand, and what may not be certified."""

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from scipy.stats import binom, binomtest
from sklearn.linear_model import LogisticRegression
from torch import nn

import holdfast as hf
from holdfast._core.binomial import exact_interval, models_needed
from holdfast.auditing import certificates
from holdfast.auditing.audit import Audit, audit
from holdfast.errors import ModelError, SchemaError, SettingError
from holdfast.methods.stable_neighbor_search import StableNeighborSearch
from holdfast.nn.architecture import mlp
from holdfast.nn.module_stack import stack_of
from holdfast.render.charts.audit import disagreement, invalidation, survival_cost
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.recipe import Recipe
from holdfast.target import Status
from support.tables import seeded

PGD = hf.MinEpsilonPGD(radius=4.0, radii=8, steps=10)


def network(
    outputs: int = 2, seed: int = 0, d: int = 3, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    module = mlp(d, (8,), outputs).to(dtype)
    seeded(module, seed)
    return module


def bank_of(modules: Sequence[nn.Module], like: hf.Model, family: str = "seed") -> ModelBank:
    stack = stack_of(modules[0], len(modules))
    states = [stack.named(dict(m.state_dict())) for m in modules]
    stack.load({name: torch.stack([s[name] for s in states]) for name in states[0]})
    return ModelBank((ModelGroup(family, stack),), like.schema, like.classes, Recipe(), 0)


def answered(n: int, model: hf.Model | None = None, target: object = None) -> hf.Counterfactuals:
    model = model or hf.Model.of(network(), hf.Schema.box(3), classes=["no", "yes"])
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(1), dtype=model.dtype)
    return PGD.explain(model, x, target)


def audit_of(
    held: np.ndarray, family: Sequence[str] | None = None, codes: Sequence[int] | None = None
) -> Audit:
    """An audit with this table of models and answers; all answers found unless `codes` says
    otherwise."""
    held = np.asarray(held, dtype=bool)
    cfs = answered(held.shape[1])
    assert cfs.found.all()
    cfs = cfs if codes is None else replace(cfs, status_codes=np.array(codes, dtype=np.int64))
    return Audit(cfs, held, np.array(family or ["seed"] * len(held), dtype=object), "0" * 16)


# ---- certificates


@pytest.mark.parametrize("models", [20, 59, 100, 250])
@pytest.mark.parametrize("asked", [0.7, 0.85, 0.95])
def test_certificates_are_wrong_at_most_as_often_as_said(models: int, asked: float) -> None:
    """In closed form: of answers that the share p < asked of all models accepts, those are
    certified, wrongly, which k or more models of the bank accept. That is a tail of the binomial
    distribution, largest next to `asked`."""
    held = np.arange(models)[:, None] < np.arange(models + 1)  # answer k is accepted by k models
    some = audit_of(held)
    if models < models_needed(asked):
        with pytest.raises(
            SettingError,
            match=f"needs at least {models_needed(asked)} models, and there are {models}",
        ):
            some.certified(hold=asked)
        return
    sure = some.certified(hold=asked).to_numpy()
    least = int(sure.argmax())
    assert sure.tolist() == [k >= least for k in range(models + 1)]
    wrong = binom.sf(least - 1, models, np.linspace(0.01, 1, 200) * asked)
    assert (np.diff(wrong) >= 0).all()
    assert wrong.max() <= 0.05
    # And not by refusing everything: with one accepting model less it would be wrong too often.
    assert binom.sf(least - 2, models, asked) > 0.05


def test_certificates_are_given_where_they_are_deserved() -> None:
    rng = np.random.default_rng(0)
    held = rng.random((250, 40)) < 0.99
    assert audit_of(held).certified(hold=0.9).mean() > 0.95


def test_too_few_models_say_how_many_it_takes() -> None:
    for hold, confidence in [(0.95, 0.95), (0.9, 0.99), (0.5, 0.75), (0.8, 0.5)]:
        m = models_needed(hold, confidence)
        settings = {"hold": hold, "confidence": confidence}
        enough = audit_of(np.ones((m, 4)))
        assert enough.certified(**settings).all()
        assert enough.too_few(**settings) == ""
        assert enough.table(**settings)["certified"].tolist() == [True] * 4
        assert "4 of 4 answers are certified" in enough.summary(**settings)
        if m == 1:
            continue
        short = audit_of(np.ones((m - 1, 4)))
        told = (
            rf"needs at least {m} models, and there are {m - 1}; make more, as with "
            rf"families={{'retrain': {m}}}"
        )
        with pytest.raises(SettingError, match=told):
            short.certified(**settings)
        assert short.table(**settings)["certified"].tolist() == [None] * 4
        assert re.search(told, short.summary(**settings))
        assert "are certified" not in short.summary(**settings)
        told_json = json.loads(short.to_json(**settings))
        assert told_json["certified"] == {**settings, "answers": None, "models needed": m}
        assert [a["certified"] for a in told_json["answers"]] == [None] * 4
        assert re.search(told, told_json["statement"])
    short = np.ones((59, 2))
    short[0, 1] = 0
    assert audit_of(short).certified().tolist() == [True, False]
    # Of one family as well.
    both = audit_of(np.ones((70, 2)), ["seed"] * 60 + ["bootstrap"] * 10)
    assert both.certified(family="seed").all()
    with pytest.raises(
        SettingError, match=r"there are 10; make more, as with families={'bootstrap': 59}"
    ):
        both.certified(family="bootstrap")


def test_shares_out_of_range_are_refused() -> None:
    some = audit_of(np.ones((3, 2)))
    for call in (
        lambda: some.certified(hold=1.0),
        lambda: some.certified(confidence=0.0),
        lambda: some.interval(confidence=1.5),
        lambda: some.too_few(hold=-1),
    ):
        with pytest.raises(SettingError, match="between 0 and 1"):
            call()
    with pytest.raises(SettingError, match=r"no family 'sed'.*seed"):
        some.survival("sed")


# ---- by hand


TABLE = [[1, 1, 0, 1], [1, 0, 0, 1], [1, 1, 1, 1]]  # three models, four answers


def test_table_by_hand() -> None:
    some = audit_of(np.array(TABLE), ["seed", "seed", "drop"])
    assert some.survival().tolist() == [1.0, 2 / 3, 1 / 3, 1.0]
    assert some.survival("seed").tolist() == [1.0, 0.5, 0.0, 1.0]
    assert some.survival("drop").tolist() == [1.0] * 4
    # The models lose 1, 2 and 0 of 4.
    lost = some.invalidation()
    assert lost == {"seed": (pytest.approx(0.375), pytest.approx(0.125)), "drop": (0.0, 0.0)}
    summary = some.by_family()
    assert list(summary.index) == ["all", "seed", "drop"]
    assert summary["survival"].tolist() == pytest.approx([0.75, 0.625, 1.0])
    assert summary["worst model"].tolist() == [0.5, 0.5, 1.0]
    assert summary["models"].tolist() == [3, 2, 1]
    assert summary["coverage"].tolist() == summary["base validity"].tolist() == [1.0] * 3
    assert summary["end to end"].tolist() == pytest.approx([0.75, 0.625, 1.0])
    assert summary["spread"].tolist() == pytest.approx([np.std([0.75, 0.5, 1.0]), 0.125, 0.0])
    table = some.table()
    # Few models, too few for a certificate: which of them accept which answer?
    figures = ["status", "survival", "models", "bound", "certified"]
    assert list(table.columns) == [*figures, "seed 1", "seed 2", "drop"]
    assert table[["seed 1", "seed 2", "drop"]].to_numpy().T.tolist() == [
        [bool(v) for v in row] for row in TABLE
    ]
    assert list(some.table(hold=0.29, confidence=0.07).columns) == [*figures, "seed", "drop"]
    many = audit_of(np.array(TABLE * 4), ["seed", "seed", "drop"] * 4).table()
    assert list(many.columns) == [*figures, "seed", "drop"]
    known = binomtest(2, 3).proportion_ci(method="exact")
    ends = some.interval().iloc[1]
    assert (ends["low"], ends["high"]) == pytest.approx((known.low, known.high))
    # Beside the certificate stands the one-sided bound that it rests on, and no interval.
    assert table["bound"].iloc[3] == pytest.approx(0.05 ** (1 / 3))
    assert repr(some).startswith("Audit of 4 answers for 4 rows on 3 models (seed: 2, drop: 1)\n")
    assert "\nWhat a model must give: any other class (rule: target)\n" in repr(some)
    assert (
        "No certificates: a certificate that an answer holds for at least 95% of models made as "
        "those" in repr(some)
    )
    assert "needs at least 59 models, and there are 3" in repr(some)
    low = some.summary(hold=0.29, confidence=0.07)
    each = (
        "each holds for at least 29% of models made as those of the bank were, with 7% confidence"
    )
    assert f"4 of 4 answers are certified: {each}" in low
    assert low.endswith(certificates.covers(["seed", "drop"]))
    assert "needs at least" not in low
    assert "<table" in some._repr_html_()
    assert "rule: target" in some._repr_html_()


@pytest.mark.parametrize(
    "held", [np.array(TABLE), np.ones((2, 0))], ids=["four answers", "no answers"]
)
def test_a_saved_audit_is_the_same_audit(held: np.ndarray, tmp_path: Path) -> None:
    some = audit_of(held, ["seed", "drop", "seed"][: len(held)])
    if len(some.cfs):
        frames = {
            name: getattr(some.cfs, name).set_axis(list("wxyz")) for name in ("before", "after")
        }
        some = replace(some, cfs=replace(some.cfs, **frames))
    some.save(tmp_path / "audit.parquet")
    again = Audit.load(tmp_path / "audit.parquet")
    assert (again.held == some.held).all()
    assert again.held.shape == some.held.shape
    assert (again.family.tolist(), again.bank) == (some.family.tolist(), some.bank)
    assert again.cfs.run == some.cfs.run
    pd.testing.assert_frame_equal(again.table(), some.table())
    if len(some.cfs):
        assert (repr(again), again.to_json()) == (repr(some), some.to_json())
        assert again.plot().to_dict()["datasets"] == some.plot().to_dict()["datasets"]
    # The answers alone are in the same file.
    pd.testing.assert_frame_equal(
        hf.Counterfactuals.load(tmp_path / "audit.parquet").after, some.cfs.after
    )


def test_audit_files_go_by_their_extension(tmp_path: Path) -> None:
    some = audit_of(np.array(TABLE))
    some.save(tmp_path / "audit.json")
    assert json.loads((tmp_path / "audit.json").read_text()) == json.loads(some.to_json())
    with pytest.raises(hf.HoldfastError, match=r"must be one of .parquet, .json"):
        some.save(tmp_path / "audit.csv")
    some.cfs.save(tmp_path / "answers.parquet")
    with pytest.raises(hf.HoldfastError, match="holds answers and no audit of them"):
        Audit.load(tmp_path / "answers.parquet")
    with pytest.raises(hf.HoldfastError, match="no file at"):
        Audit.load(tmp_path / "nothing.parquet")


def test_failed_rows_and_rows_without_need_by_hand() -> None:
    """Answer 0 was met from the start, answer 2 failed: of three that asked, two have an answer."""
    codes = [Status.ALREADY_MET, Status.FOUND, Status.NOT_FOUND, Status.FOUND]
    some = audit_of(np.array(TABLE), codes=codes)
    survival = some.survival()
    assert survival.isna().tolist() == [True, False, True, False]
    assert survival.iloc[[1, 3]].tolist() == [2 / 3, 1.0]
    assert some.interval().isna().any(axis=1).tolist() == [True, False, True, False]
    # Of answers 1 and 3 the models keep 2, 1 and 2.
    line = some.by_family().loc["all"]
    assert line["coverage"] == 1.0  # the failed row has an attempt
    assert line["base validity"] == pytest.approx(2 / 3)
    assert line["survival"] == pytest.approx(5 / 6)
    assert line["worst model"] == 0.5
    assert line["end to end"] == pytest.approx(5 / 9)
    assert some.invalidation()["seed"] == (pytest.approx(1 / 6), pytest.approx(np.std([0, 0.5, 0])))
    assert not some.certified(hold=0.1, confidence=0.1).iloc[[0, 2]].any()
    still = replace(
        some,
        cfs=replace(some.cfs, x_cf=torch.where(torch.tensor(codes)[:, None] == 2, some.cfs.x, 9.0)),
    )
    assert still.by_family().loc["all", "coverage"] == pytest.approx(2 / 3)
    assert still.by_family().loc["all", "base validity"] == 1.0


def test_fragile_answers_are_audited_too() -> None:
    """The model accepts them; how many retrained models do is what is to be seen."""
    some = audit_of(
        np.array(TABLE), codes=[Status.FRAGILE, Status.FOUND, Status.IMPOSSIBLE, Status.FRAGILE]
    )
    assert some.survival().isna().tolist() == [False, False, True, False]
    assert some.survival().iloc[[0, 1, 3]].tolist() == [1.0, 2 / 3, 1.0]
    assert some.certified(hold=0.3, confidence=0.9).tolist() == [True, False, False, True]
    assert some.table()["status"].tolist() == ["fragile", "found", "impossible", "fragile"]
    assert repr(some).startswith("Audit of 3 answers for 4 rows")


def test_no_answer_at_all() -> None:
    some = audit_of(np.array(TABLE), codes=[Status.NOT_FOUND] * 3 + [Status.ALREADY_MET])
    assert some.survival().isna().all()
    line = some.by_family().loc["all"]
    assert np.isnan(line["survival"])
    assert line["end to end"] == 0.0
    assert np.isnan(some.invalidation()["seed"]).all()
    assert not some.certified(hold=0.1, confidence=0.1).any()
    assert some.table()[["seed 1", "seed 2", "seed 3"]].isna().all().all()
    json.loads(some.to_json(), parse_constant=pytest.fail)
    with pytest.raises(SettingError, match="no audit has an answer"):
        invalidation({"none": some})


def test_json_has_everything_and_no_nan() -> None:
    codes = [Status.ALREADY_MET, Status.FOUND, Status.NOT_FOUND, Status.FOUND]
    some = audit_of(np.array(TABLE), ["seed", "seed", "drop"], codes)
    content = json.loads(some.to_json(hold=0.3, confidence=0.6), parse_constant=pytest.fail)
    assert [a["status"] for a in content["answers"]] == [
        "already met",
        "found",
        "not found",
        "found",
    ]
    assert [a["survival"] for a in content["answers"]] == [None, 2 / 3, None, 1.0]
    certified = some.certified(hold=0.3, confidence=0.6)
    assert [a["certified"] for a in content["answers"]] == certified.tolist()
    level = {"hold": 0.3, "confidence": 0.6, "models needed": 1}
    assert content["certified"] == {**level, "answers": int(certified.sum())}
    assert content["covers"] == certificates.covers(["seed", "drop"])
    assert (content["rule"], content["asked"]) == ("target", "any other class")
    assert set(content["by family"]) == {"all", "seed", "drop"}
    assert content["by family"]["drop"]["spread"] == 0.0
    assert content["bank"] == some.bank
    assert "MinEpsilonPGD" in content["method"]


def test_rows_with_several_answers() -> None:
    model = hf.Model.of(network(), hf.Schema.box(3), classes=["no", "yes"])
    data = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
    cfs = hf.NearestNeighbor(n_counterfactuals=3).fit(model, data).explain(model, data[:5])
    some = audit(cfs, bank_of([network(seed=s) for s in range(4)], model))
    table = some.table()
    assert len(table) == len(cfs) == 15
    assert table["survival"].tolist() == some.held.mean(0).tolist()
    low, high = exact_interval(some.held.sum(0), 4)
    assert np.array_equal(some.interval().to_numpy(), np.stack([low, high], 1))
    assert len(json.loads(some.to_json())["answers"]) == 15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_answers_and_bank_in_other_precision(dtype: torch.dtype) -> None:
    model = hf.Model.of(network(dtype=dtype), hf.Schema.box(3), classes=["no", "yes"])
    cfs = answered(30, model)
    for kind in (torch.float32, torch.float64):
        modules = [network(seed=s).to(kind) for s in range(3)]
        bank = bank_of(modules, model)
        with torch.no_grad():
            says = torch.stack([m(cfs.x_cf.to(kind)).argmax(1) for m in modules])
        held = audit(cfs, bank).held
        assert (held == (says != cfs.goal.label).numpy()).all()


def test_bank_that_guided_the_search_is_refused() -> None:
    model = hf.Model.of(network(), hf.Schema.box(3), classes=["no", "yes"])
    modules = [network(seed=s) for s in range(6)]
    sns = StableNeighborSearch(PGD, radius=0.2, steps=3, bank=bank_of(modules[:3], model))
    cfs = sns.explain(model, torch.randn(5, 3, generator=torch.Generator().manual_seed(1)))
    with pytest.raises(SettingError, match="2 of the bank's 4 models guided the search"):
        audit(cfs, bank_of(modules[1:5], model))
    assert len(audit(cfs, bank_of(modules[3:], model)).held) == 3


def test_banks_that_do_not_fit_are_refused() -> None:
    cfs = answered(4)
    model = hf.Model.of(network(), hf.Schema.box(3), classes=["no", "yes"])
    bank = bank_of([network()], model)
    with pytest.raises(ModelError, match="classes"):
        audit(cfs, replace(bank, classes=("bad", "good")))
    with pytest.raises(SchemaError, match="schema"):
        audit(cfs, replace(bank, schema=hf.Schema.box(["a", "b", "c"])))
    # What may change is no matter of the models: only how rows become numbers is.
    assert len(audit(cfs, replace(bank, schema=hf.Schema.box(3, -1, 1))).held) == 1
    for wrong in ((bank, cfs), (cfs, None), (cfs, cfs), (model, bank)):
        with pytest.raises(
            SettingError, match="audit takes answers and a ModelBank, or models, got"
        ):
            audit(*wrong)


def test_models_that_exist_need_no_bank() -> None:
    """The next release, wrapped or bare, or several: which answers hold on which of them."""
    fits = [LogisticRegression(C=c).fit(TABLE_X, TABLE_Y) for c in (1.0, 0.001, 100.0)]
    schema = hf.Schema.infer(TABLE_X)
    model = hf.Model.of(fits[0], schema)
    new = hf.Model.of(fits[1], schema)
    X = TABLE_X[(model.predict(TABLE_X) == "no").to_numpy()].head(8)
    cfs = hf.MinCost().explain(model, X, hf.Target("yes", probability=0.8))
    by_hand = [fit.predict_proba(cfs.after)[:, 1] > 0.8 for fit in fits]
    assert by_hand[0].all()
    for judge in (new, fits[1]):
        one = audit(cfs, judge)
        assert one.families == ["release"]
        assert one.held.tolist() == [by_hand[1].tolist()]
        assert one.table()["release"].tolist() == by_hand[1].tolist()
        assert "needs at least 59 models, and there are 1" in repr(one)
    both = audit(cfs, [new, fits[2]])
    assert both.held.tolist() == [by_hand[1].tolist(), by_hand[2].tolist()]
    assert both.table()[["release 1", "release 2"]].to_numpy().T.tolist() == both.held.tolist()
    assert both.table()["certified"].isna().all()
    assert audit(cfs, model).survival().tolist() == [1.0] * 8  # the model itself takes nothing back
    # Of a plain list every refusal counts: nothing says that two models that agree were not trained
    # apart.
    with pytest.warns(
        UserWarning,
        match="1 models compute the same as others, and nothing says that they were trained",
    ):
        twice = audit(cfs, [new, fits[1]])
    assert twice.held.tolist() == [by_hand[1].tolist()] * 2
    assert twice.repeats is not None
    assert twice.repeats.tolist() == [False, True]
    net = Recipe(hidden=(4,), epochs=5).fit(TABLE_X, TABLE_Y, schema)
    assert (audit(cfs, net, rule="class").held[0] == (net.predict(cfs.after) == "yes")).all()
    # Other names of the classes are those of the answers.
    coded = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(
        TABLE_X, (TABLE_Y == "yes").astype(int)
    )
    assert (audit(cfs, coded).held[0] == (coded.predict_proba(cfs.after)[:, 1] > 0.8)).all()
    with pytest.raises(SettingError, match="at least one model"):
        audit(cfs, [])


TABLE_X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=["x0", "x1", "x2"])
TABLE_Y = pd.Series(np.where(TABLE_X["x0"] + TABLE_X["x1"] > 0, "yes", "no"))


def guided(guide: ModelBank, model: hf.Model) -> hf.Counterfactuals:
    refused = TABLE_X[(model.predict(TABLE_X) == "no").to_numpy()].head(6)
    return StableNeighborSearch(PGD, radius=1.0, steps=5, bank=guide).explain(model, refused, "yes")


def test_guides_are_known_however_they_are_spelt(tmp_path: Path) -> None:
    schema = hf.Schema.infer(TABLE_X)
    layers = nn.Sequential(OrderedDict(first=nn.Linear(3, 6), bend=nn.ReLU(), last=nn.Linear(6, 2)))
    module = Recipe(module=layers, epochs=3)
    module.save(tmp_path / "recipe.toml")
    pairs = [
        (
            Recipe(hidden=(6,), epochs=3, weight_decay=0),
            Recipe(hidden=(6,), epochs=3, weight_decay=0.0),
            0,
            0,
        ),
        (
            Recipe(hidden=(6,), epochs=3, lr=np.float64(0.01)),
            Recipe(hidden=(6,), epochs=3, lr=0.01),
            0,
            0,
        ),
        (
            Recipe(hidden=(6,), epochs=3, batch_size=256),
            Recipe(hidden=(6,), epochs=3, batch_size=512),
            0,
            0,
        ),
        (
            Recipe(hidden=(6,), epochs=3, batch_size=256),
            Recipe(hidden=(6,), epochs=3, batch_size=256),
            0,
            1,
        ),
        (module, Recipe.load(tmp_path / "recipe.toml"), 0, 0),
    ]
    for one, other, seed, new_seed in pairs:
        model = one.fit(TABLE_X, TABLE_Y, schema)
        guide = ModelBank.retrain(one, TABLE_X, TABLE_Y, schema, families={"seed": 4}, seed=seed)
        again = ModelBank.retrain(
            other, TABLE_X, TABLE_Y, schema, families={"seed": 4}, seed=new_seed
        )
        with pytest.raises(SettingError, match="guided the search"):
            audit(guided(guide, model), again)
    guide.save(tmp_path / "bank.safetensors")
    bare = ModelBank.load(tmp_path / "bank.safetensors")
    stripped = replace(bare, groups=tuple(replace(group, origins=()) for group in bare.groups))
    with pytest.raises(SettingError, match="4 of the bank's 4 models guided the search"):
        audit(guided(guide, model), stripped)


def test_a_model_that_is_there_twice_counts_once() -> None:
    schema = hf.Schema.infer(TABLE_X)
    recipe = Recipe(hidden=(6,), epochs=2)
    model = recipe.fit(TABLE_X, TABLE_Y, schema)
    cfs = PGD.explain(model, TABLE_X[(model.predict(TABLE_X) == "no").to_numpy()].head(6), "yes")
    bank = ModelBank.retrain(recipe, TABLE_X, TABLE_Y, schema, families={"seed": 5})
    once = audit(cfs, bank)
    with pytest.warns(UserWarning, match="5 models of the bank are copies"):
        twice = audit(cfs, bank.join(bank))
    assert np.array_equal(once.held, twice.held)
    # only 3 different lengths
    few = ModelBank.retrain(recipe, TABLE_X, TABLE_Y, schema, families={"epochs": 40})
    with pytest.warns(UserWarning, match="37 models"):
        assert len(audit(cfs, few).held) == 3


def test_rows_count_once_however_many_answers_they_have() -> None:
    """Two answers per row; a row holds where any of its answers does."""
    some = audit_of(np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]))
    some = replace(some, cfs=replace(some.cfs, source=np.array([0, 0, 1, 1])))
    assert some.by_family().loc["all", "end to end"] == pytest.approx((1 + 2 + 0) / 6)
    assert some.by_family().loc["all", "survival"] == pytest.approx(3 / 12)


# ---- pictures


def data_of(chart: dict, marker: str) -> pd.DataFrame:
    """The only dataset of a chart with this column."""
    found = [rows for rows in chart["datasets"].values() if rows and marker in rows[0]]
    assert len(found) == 1
    return pd.DataFrame(found[0])


def test_survival_against_cost() -> None:
    held = np.ones((80, 4))
    held[:30, 2] = 0
    some = audit_of(held, codes=[Status.FOUND, Status.NOT_FOUND, Status.FOUND, Status.FOUND])
    for chart in (survival_cost(some), some.plot()):
        content = chart.to_dict()
        dots = data_of(content, "verdict")
        assert dots["survival"].tolist() == [1.0, 0.625, 1.0]
        assert dots["cost"].tolist() == some.cfs.cost("l2").iloc[[0, 2, 3]].tolist()
        sure = "certified: at least 95% of models, 95% sure"
        assert dots["verdict"].tolist() == [sure, "not certified", sure]
        assert data_of(content, "hold")["hold"].tolist() == [0.95]
    words = data_of(some.plot(hold=0.5, confidence=0.995).to_dict(), "verdict")["verdict"]
    assert words.tolist()[0] == "certified: at least 50% of models, 99.5% sure"


def test_invalidation_bars() -> None:
    one = audit_of(np.array(TABLE), ["seed", "seed", "drop"])
    none = audit_of(np.ones((2, 4)), codes=[Status.NOT_FOUND] * 4)
    content = invalidation(
        {"first": one, "second": audit_of(np.ones((2, 4))), "empty": none}
    ).to_dict()
    bars = data_of(content, "mean")
    assert bars[["method", "family"]].to_numpy().tolist() == [
        ["first", "seed"],
        ["first", "drop"],
        ["second", "seed"],
    ]
    assert bars["mean"].tolist() == pytest.approx([0.375, 0.0, 0.0])
    assert bars["low"].tolist() == pytest.approx([0.25, 0.0, 0.0])
    assert bars["high"].tolist() == pytest.approx([0.5, 0.0, 0.0])


def side(column: int, level: float) -> nn.Module:
    """yes where a column exceeds a level."""
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.eye(2)[column][None])
        module.bias.fill_(-level)
    return module


def test_map_of_two_models() -> None:
    """x0 > 0.2 against x0 > 0.7 on [0, 1]: they disagree between the two levels and nowhere
    else."""
    schema = hf.Schema.box(2)
    models = [hf.Model.of(side(0, level), schema, classes=["no", "yes"]) for level in (0.2, 0.7)]
    X = pd.DataFrame({"x0": [0.0, 1.0, 0.5], "x1": [0.0, 1.0, 2.0]})
    steps = pd.DataFrame({"x": [0.0], "y": [0.0], "x_cf": [0.9], "y_cf": [0.5]})
    content = disagreement(*models, X, pd.Series(["no", "yes", "yes"]), steps=steps).to_dict()
    cells = data_of(content, "left")
    middle = (cells["left"] + cells["right"]) / 2
    expected = np.where(middle > 0.7, "yes", np.where(middle > 0.2, "the models disagree", "no"))
    assert (cells["region"] == expected).all()
    assert cells["left"].min() == pytest.approx(-0.1)
    assert cells["right"].max() == pytest.approx(1.1)
    assert cells["top"].max() == pytest.approx(2.2)
    assert data_of(content, "a")[["a", "b", "region"]].to_numpy().tolist() == [
        [0.0, 0.0, "no"],
        [1.0, 1.0, "yes"],
        [0.5, 2.0, "yes"],
    ]
    assert data_of(content, "x_cf").to_dict("list") == steps.to_dict("list")
    many = pd.DataFrame(np.random.default_rng(0).random((7000, 2)), columns=["x0", "x1"])
    crossed = [models[0], hf.Model.of(side(1, 0.7), schema, classes=["no", "yes"])]
    content = disagreement(*crossed, many, pd.Series(["no"] * 7000)).to_dict()
    cells = data_of(content, "left")
    area = (
        ((cells["right"] - cells["left"]) * (cells["top"] - cells["bottom"]))
        .groupby(cells["region"])
        .sum()
    )
    # On [-0.1, 1.1]^2: 0.9 x 0.4 where both say yes, 0.3 x 0.8 where neither does.
    assert area["yes"] == pytest.approx(0.36, abs=0.02)
    assert area["no"] == pytest.approx(0.24, abs=0.02)
    assert area.sum() == pytest.approx(1.44, abs=0.01)
    assert len(data_of(content, "a")) <= 5000
    three = hf.Model.of(network(), hf.Schema.box(3))
    with pytest.raises(SettingError, match="exactly two numeric features"):
        disagreement(three, three, X, pd.Series(["no", "yes", "yes"]))
