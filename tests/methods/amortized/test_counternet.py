"""CounterNet and RoCourseNet: scikit-learn's manners, files that run no code, and recourse that
keeps its promises."""

import io
import json
import pickle
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import holdfast as hf
from holdfast.errors import FileError, SettingError
from holdfast.schema.verify import violations
from holdfast.target import Status
from support.tables import mixed_schema, mixed_table

SMALL: dict[str, Any] = {
    "encoder": (8,),
    "predictor": (8,),
    "generator": (8,),
    "epochs": 10,
    "batch_size": 32,
    "lr": 0.05,
}
QUICK = hf.Shift(outer=1, inner=1)
ROBUST: dict[str, Any] = {**SMALL, "shift": QUICK}
KINDS = [
    lambda **more: hf.CounterNet(**{**SMALL, **more}),
    lambda **more: hf.RoCourseNet(**{**ROBUST, **more}),
]
both = pytest.mark.parametrize("kind", KINDS, ids=["CounterNet", "RoCourseNet"])
Kind = Callable[..., hf.CounterNet]

TABLE = mixed_table(300)
SCHEMA = mixed_schema(TABLE)
SCORE = TABLE["income"] / 900 + TABLE["owner"] - TABLE["open"] / 2
Y = np.where(SCORE > 3.2, "yes", "no")
THREE = np.select([SCORE > 3.5, SCORE > 2.5], ["high", "mid"], "low")


with warnings.catch_warnings():
    # Not of scikit-learn's own base class: that would have to be imported with every `import
    # holdfast`.
    warnings.filterwarnings("ignore", "Estimator .* does not inherit")
    # No check is expected to fail. One needs an environment variable of SciPy's and else skips
    # itself.
    checks = [
        pytest.param(
            made, check, id=f"{type(made).__name__} {check.func.__name__} {check.keywords}"
        )
        for estimator in (
            hf.CounterNet(**SMALL, dropout=0.0),
            hf.RoCourseNet(**ROBUST, dropout=0.0),
        )
        for made, check in estimator_checks_generator(estimator, legacy=True)
        if check.func.__name__ != "check_array_api_input"
    ]


@pytest.mark.parametrize(("estimator", "check"), checks)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# ---- as an estimator


@both
def test_clone_params_and_repr(kind: Kind) -> None:
    net = kind(seed=3, l3=0.5)
    twin = clone(net)
    assert twin.get_params() == net.get_params()
    assert repr(twin) == repr(net)
    with pytest.raises(SettingError, match="did you mean 'l3'"):
        net.set_params(l33=1)
    for ask in (net.predict, net.predict_proba, net.recourse):
        with pytest.raises(NotFittedError):
            ask(TABLE)
    with pytest.raises(NotFittedError):
        net.save("net.safetensors")


def test_search_over_settings_with_a_schema() -> None:
    search = GridSearchCV(hf.CounterNet(**SMALL), {"l3": [0.0, 0.5]}, cv=2, error_score="raise")
    search.fit(TABLE, Y, schema=SCHEMA)
    assert search.best_params_["l3"] in (0.0, 0.5)
    assert search.best_estimator_.schema_ == SCHEMA
    assert search.best_score_ > 0.6
    assert len(search.best_estimator_.recourse(TABLE.head(9))) == 9
    scores = cross_val_score(
        hf.CounterNet(**SMALL), TABLE, Y, cv=3, params={"schema": SCHEMA}, error_score="raise"
    )
    assert scores.mean() > 0.6


def test_inside_a_pipeline() -> None:
    pipe = Pipeline([("keep", FunctionTransformer()), ("net", hf.CounterNet(**SMALL))])
    pipe.fit(TABLE, Y, net__schema=SCHEMA)
    alone = hf.CounterNet(**SMALL).fit(TABLE, Y, SCHEMA)
    assert (pipe.predict_proba(TABLE) == alone.predict_proba(TABLE)).all()
    search = GridSearchCV(pipe, {"net__l3": [0.0, 0.5]}, cv=2, error_score="raise").fit(
        TABLE, Y, net__schema=SCHEMA
    )
    assert search.best_estimator_["net"].schema_ == SCHEMA


def test_outcomes_of_every_form_are_the_same() -> None:
    want = hf.CounterNet(**SMALL).fit(TABLE, Y, SCHEMA).predict_proba(TABLE)
    for y in (
        Y.tolist(),
        pd.Series(Y, index=TABLE.index),
        pd.Series(Y, index=TABLE.index, dtype="category"),
    ):
        assert (hf.CounterNet(**SMALL).fit(TABLE, y, SCHEMA).predict_proba(TABLE) == want).all()
    with pytest.raises(ValueError, match="another order"):
        hf.CounterNet(**SMALL).fit(TABLE, pd.Series(Y, index=TABLE.index[::-1]), SCHEMA)
    with pytest.raises(ValueError, match="as many outcomes"):
        hf.CounterNet(**SMALL).fit(TABLE, Y[:-1], SCHEMA)
    with pytest.raises(ValueError, match="two known classes"):
        hf.CounterNet(**SMALL).fit(TABLE, np.full(len(TABLE), "yes"), SCHEMA)
    with pytest.raises(SettingError, match="schema must be"):
        hf.CounterNet(**SMALL).fit(TABLE, Y, {"age": "fixed"})


def test_a_table_with_numbered_columns() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 3)))
    net = hf.CounterNet(**SMALL).fit(X, X[0] > 0)
    assert net.schema_.names == ["0", "1", "2"]
    assert list(net.recourse(X.head(3)).after.columns) == ["0", "1", "2"]


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder", ()),
        ("encoder", 5),
        ("encoder", "64"),
        ("predictor", (0,)),
        ("generator", (1.5,)),
        ("dropout", 1.0),
        ("dropout", None),
        ("epochs", 0),
        ("epochs", 2.5),
        ("batch_size", 0),
        ("lr", -1.0),
        ("lr", "fast"),
        ("l1", -1.0),
        ("l2", float("nan")),
        ("l3", "x"),
        ("clip", -1.0),
        ("smooth_labels", "no"),
        ("seed", 0.5),
        ("seed", 1 << 60),
    ],
)
def test_bad_settings_are_named_at_fit(kind: Kind, name: str, value: object) -> None:
    with pytest.raises(SettingError, match=name):
        kind(**{name: value}).fit(TABLE, Y, SCHEMA)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule", "cosine"),
        ("shift", "strong"),
        ("shift", {"epsilon": 0.1}),
        ("attack_dropout", 1),
    ],
)
def test_bad_settings_of_the_attack_are_named_at_fit(name: str, value: object) -> None:
    with pytest.raises(SettingError, match=name):
        hf.RoCourseNet(**{**ROBUST, name: value}).fit(TABLE, Y, SCHEMA)


def test_a_rocoursenet_is_a_counternet_with_a_shift() -> None:
    assert hf.RoCourseNet().get_params() == hf.CounterNet().get_params()
    assert hf.CounterNet().checked().shift is None
    assert hf.RoCourseNet().checked().shift == hf.Shift()
    one = hf.RoCourseNet(**ROBUST).fit(TABLE, Y, SCHEMA)
    two = hf.CounterNet(**ROBUST).fit(TABLE, Y, SCHEMA)
    assert torch.equal(one.recourse(TABLE).x_cf, two.recourse(TABLE).x_cf)


# Tables 4 and 5: lr, eta, batch, l2, encoder, predictor, generator; layers without the input
TABLES = {
    "sba_loan": (0.003, 0.03, 128, 0.2, (200, 10), (10,), (10,)),
    "german_credit": (0.003, 0.03, 256, 1.0, (100, 10), (20,), (20,)),
    "student": (0.01, 0.01, 128, 0.2, (50, 10), (10,), (50,)),
}


@pytest.mark.parametrize("dataset", TABLES)
def test_the_papers_network_is_the_printed_one(dataset: str) -> None:
    net = hf.RoCourseNet.paper(dataset)
    plain = hf.CounterNet.paper(dataset)
    lr, eta, batch, l2, encoder, predictor, generator = TABLES[dataset]
    assert (net.lr, net.batch_size) == (lr, batch)
    assert (net.l1, net.l2, net.l3) == (1.0, l2, 0.1)
    assert (net.encoder, net.predictor, net.generator) == (encoder, predictor, generator)
    assert (net.epochs, net.dropout, net.schedule, net.loss) == (50, 0.3, "linear", "squared")
    own_ways = ("condition_on_target", "clip_to_data", "hard_categories", "smooth_labels", "clip")
    assert not any(getattr(net, way) for way in (*own_ways, "attack_dropout"))
    # T = 7, K = 2, E = 0.1; plain descent; the ball holds all columns
    assert net.shift == hf.Shift(
        epsilon=0.1, outer=7, inner=2, eta=eta, optimizer="sgd", norm="linf", categories="clamp"
    )
    assert plain.shift is None
    unshifted = {k: v for k, v in net.get_params().items() if not k.startswith("shift")}
    assert unshifted == {k: v for k, v in plain.get_params().items() if k != "shift"}


def test_settings_of_the_papers_network_can_be_replaced_and_its_datasets_are_named() -> None:
    net = hf.RoCourseNet.paper("student", epochs=2, shift=QUICK)
    assert (net.epochs, net.shift) == (2, QUICK)
    with pytest.raises(SettingError, match="did you mean 'student'"):
        hf.RoCourseNet.paper("studnet")


def test_settings_of_the_shift_are_reached_from_outside() -> None:
    net = hf.RoCourseNet(shift=QUICK)
    twin = clone(net).set_params(shift__epsilon=0.3, shift__outer=4)
    assert twin.shift == hf.Shift(epsilon=0.3, outer=4, inner=1)
    assert twin.get_params()["shift__epsilon"] == 0.3
    assert net.shift == QUICK  # which may be shared, and stays as it is
    with pytest.raises(SettingError, match="did you mean 'epsilon'"):
        net.set_params(shift__epsilom=0.3)
    with pytest.raises(SettingError, match=r"shift is None.*set shift itself first"):
        hf.RoCourseNet().set_params(shift__epsilon=0.3)
    search = GridSearchCV(
        hf.RoCourseNet(**ROBUST), {"shift__epsilon": [0.1, 0.3]}, cv=2, error_score="raise"
    )
    search.fit(TABLE, Y, schema=SCHEMA)
    assert search.best_estimator_.shift.epsilon == search.best_params_["shift__epsilon"]


def test_widths_may_be_lists_and_numpy_numbers() -> None:
    plain = hf.CounterNet(**SMALL).fit(TABLE, Y, SCHEMA)
    other = hf.CounterNet(**{**SMALL, "encoder": [np.int64(8)], "epochs": np.int64(10)}).fit(
        TABLE, Y, SCHEMA
    )
    assert plain.model_.fingerprint() == other.model_.fingerprint()


# ---- what it does


def test_no_steps_of_the_attack_make_a_counternet_bit_for_bit() -> None:
    one = hf.CounterNet(**SMALL).fit(TABLE, Y, SCHEMA)
    for still in (hf.Shift(outer=0), hf.Shift(inner=0)):
        two = hf.RoCourseNet(**SMALL, shift=still).fit(TABLE, Y, SCHEMA)
        assert (one.predict_proba(TABLE) == two.predict_proba(TABLE)).all()
        assert torch.equal(one.recourse(TABLE).x_cf, two.recourse(TABLE).x_cf)
    attacked = hf.RoCourseNet(**SMALL, shift=replace(QUICK, epsilon=0.5)).fit(TABLE, Y, SCHEMA)
    # the prediction is not touched
    assert (one.predict_proba(TABLE) == attacked.predict_proba(TABLE)).all()
    assert not torch.equal(one.recourse(TABLE).x_cf, attacked.recourse(TABLE).x_cf)


@both
def test_the_callers_world_is_left_as_found(kind: Kind) -> None:
    torch.manual_seed(7)
    random.seed(7)
    # Whoever draws from NumPy's global generator moves its state.
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    threads = torch.get_num_threads()
    grad = torch.is_grad_enabled()
    copy = TABLE.copy(deep=True)
    net = kind().fit(TABLE, Y, SCHEMA)
    net.recourse(TABLE, "yes")
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)
    pd.testing.assert_frame_equal(TABLE, copy)
    with torch.inference_mode():
        again = kind().fit(TABLE, Y, SCHEMA)
    assert (again.predict_proba(TABLE) == net.predict_proba(TABLE)).all()
    other = kind(seed=1).fit(TABLE, Y, SCHEMA)
    assert not (other.predict_proba(TABLE) == net.predict_proba(TABLE)).all()


@both
def test_recourse_keeps_to_the_schema(kind: Kind) -> None:
    schema = mixed_schema(TABLE, max_changes=0)
    net = kind(l2=2.0, epochs=30).fit(TABLE, Y, schema)
    cfs = net.recourse(TABLE)
    before = schema.read(cfs.before)
    after = schema.read(cfs.after)
    assert (violations(schema, before, after)[cfs.found] == "").all()
    assert (cfs.after["sex"] == cfs.before["sex"]).all()
    assert (cfs.after["age"] >= cfs.before["age"]).all()
    assert (cfs.after["visits"] <= cfs.before["visits"]).all()
    assert cfs.found.mean() > 0.5
    agrees = net.predict(cfs.after) != net.predict(cfs.before)
    assert agrees[cfs.found].all()


def test_targets() -> None:
    net = hf.CounterNet(**SMALL, l2=2.0).fit(TABLE, Y, SCHEMA)
    said = net.predict(TABLE)
    asked = net.recourse(TABLE, target="yes")
    assert ((asked.status_codes == Status.ALREADY_MET) == (said == "yes")).all()
    met = asked.status_codes == Status.ALREADY_MET
    pd.testing.assert_frame_equal(asked.after[met], asked.before[met])
    any_other = net.recourse(TABLE)
    assert not (any_other.status_codes == Status.ALREADY_MET).any()
    no = torch.tensor(said == "no")
    assert torch.allclose(any_other.x_cf[no], asked.x_cf[no], atol=1e-6, rtol=0)
    with pytest.raises(hf.HoldfastError, match="no class 'maybe'"):
        net.recourse(TABLE, target="maybe")
    assert len(net.recourse(TABLE.iloc[:0], "yes")) == 0


def test_more_than_two_classes() -> None:
    net = hf.CounterNet(**{**SMALL, "epochs": 60, "lr": 0.02}, l2=2.0).fit(
        TABLE, THREE, mixed_schema(TABLE, max_changes=0)
    )
    assert net.classes_.tolist() == ["high", "low", "mid"]
    p = net.predict_proba(TABLE)
    assert p.shape == (300, 3)
    assert np.allclose(p.sum(1), 1)
    assert net.score(TABLE, THREE) > 0.6
    shares = {}
    for target in net.classes_:
        cfs = net.recourse(TABLE, target)
        assert (net.predict(cfs.after)[cfs.found] == target).all()
        shares[target] = cfs.found[cfs.status_codes != Status.ALREADY_MET].mean()
    assert max(shares.values()) > 0.5, shares
    free = net.recourse(TABLE)
    assert (net.predict(free.after)[free.found] != net.predict(TABLE)[free.found]).all()
    each = np.where(net.predict(TABLE) == "low", "mid", "low")
    assert len(net.recourse(TABLE, each)) == len(TABLE)


def test_a_recourse_network_answers_for_its_own_model_only() -> None:
    net = hf.CounterNet(**SMALL).fit(TABLE, Y, SCHEMA)
    other = hf.CounterNet(**SMALL, seed=1).fit(TABLE, Y, SCHEMA)
    with pytest.raises(SettingError, match="another model"):
        net.recourse_.explain(other.model_, TABLE)
    with pytest.raises(SettingError, match="path="):
        hf.LearnedRecourse().explain(net.model_, TABLE)
    with pytest.raises(SettingError, match="path="):
        hf.LearnedRecourse().fit(net.model_, TABLE)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        hf.CounterNet(**SMALL).fit(TABLE, Y, SCHEMA, progress=True)
        assert bool(stream.getvalue()) == drawn
    monkeypatch.setattr(sys, "stderr", Terminal())
    hf.CounterNet(**SMALL).fit(TABLE, Y, SCHEMA)
    assert sys.stderr.getvalue() == ""


# ---- files


@both
@pytest.mark.parametrize(
    "y",
    [Y, (Y == "yes").astype(int), Y == "yes", THREE, np.where(Y == "yes", 2.0, -1.0)],
    ids=["str", "int", "bool", "3", "float"],
)
def test_saved_and_read_back_it_is_the_same(kind: Kind, y: Any, tmp_path: Path) -> None:
    net = kind(l2=2.0, seed=5).fit(TABLE, y, SCHEMA)
    net.save(tmp_path / "net.safetensors")
    for cls in (type(net), hf.CounterNet):
        same = cls.load(tmp_path / "net.safetensors")
        assert type(same) is type(net)
        assert same.get_params() == net.get_params()
        assert (same.predict_proba(TABLE) == net.predict_proba(TABLE)).all()
        assert same.classes_.tolist() == net.classes_.tolist()
        assert same.classes_.dtype == net.classes_.dtype
        assert (same.schema_, same.n_features_in_) == (SCHEMA, 10)
        assert same.feature_names_in_.tolist() == net.feature_names_in_.tolist()
        mine = net.recourse(TABLE)
        theirs = same.recourse(TABLE)
        assert torch.equal(mine.x_cf, theirs.x_cf)
        pd.testing.assert_frame_equal(mine.after, theirs.after)
    model = hf.Model.load(tmp_path / "net.safetensors")
    assert model.fingerprint() == net.model_.fingerprint()
    asked = hf.LearnedRecourse(path=str(tmp_path / "net.safetensors"))
    assert torch.equal(asked.explain(model, TABLE).x_cf, mine.x_cf)
    again = pickle.loads(pickle.dumps(net))
    assert torch.equal(again.recourse(TABLE).x_cf, mine.x_cf)


def test_learnt_from_an_array_it_takes_arrays_again(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    net = hf.CounterNet(**SMALL).fit(X, X[:, 0] > 0)
    net.save(tmp_path / "net.safetensors")
    same = hf.CounterNet.load(tmp_path / "net.safetensors")
    assert not hasattr(same, "feature_names_in_")
    assert (same.predict_proba(X) == net.predict_proba(X)).all()
    assert torch.equal(same.recourse(X).x_cf, net.recourse(X).x_cf)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nets") / "net.safetensors"
    hf.RoCourseNet(**ROBUST).fit(TABLE, Y, SCHEMA).save(path)
    return path


def altered(
    saved: Path, out: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> Path:
    """The file with another text about its recourse network, or other tensors."""
    with safe_open(saved, framework="pt") as file:
        metadata = dict(file.metadata())
    tensors = load_file(saved)
    content = json.loads(metadata["holdfast_generator"])
    change(content, tensors)
    save_file(tensors, out, metadata={**metadata, "holdfast_generator": json.dumps(content)})
    return out


def _set(**entries: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda content, _: content.update(entries)


def _drop(name: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda _, tensors: tensors.pop(name)


def _put(name: str, value: torch.Tensor) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda _, tensors: tensors.update({name: value})


def _setting(name: str, value: object) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda content, _: content["settings"].update({name: value})


def _narrow(content: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Only the first layer, which makes rows of its own width."""
    content["layers"] = content["layers"][:1]
    for name in [name for name in tensors if name.startswith("generator.3")]:
        del tensors[name]


LIES = {
    "a tensor is gone": _drop("generator.0.weight"),
    "a tensor too many": _put("generator.9.weight", torch.zeros(2)),
    "another shape": _put("generator.0.weight", torch.zeros(3, 3)),
    "no numbers": _put("generator.0.bias", torch.full((8,), torch.nan)),
    "another dtype": _put("generator.0.weight", torch.zeros(8, 16, dtype=torch.float64)),
    "unknown kind": _set(kind="Pickle"),
    "kind is a list": _set(kind=["CounterNet"]),
    "settings are a list": _set(settings=[]),
    "unknown setting": _setting("epoch", 3),
    "a setting that cannot be": _setting("epochs", "many"),
    "an unknown setting of the shift": _setting("shift", {"epoch": 3}),
    "a setting of the shift that cannot be": _setting("shift", {"outer": -1}),
    "a setting shift that is a text": _setting("shift", "strong"),
    "features out of range": _set(features=[2, 99]),
    "features below zero": _set(features=[-1, 5]),
    "features are texts": _set(features=["2", "5"]),
    "no features": _set(features=[]),
    "one feature": _set(features=[2]),
    "told of classes": _set(told=3),
    "told nothing": _set(told=None),
    "layers are no list": _set(layers={}),
    "no layers": _set(layers=[]),
    "a layer that does not exist": _set(layers=[{"layer": "Exec", "code": "1"}]),
    "a huge layer": _set(layers=[{"layer": "Linear", "in_features": 16, "out_features": 1 << 40}]),
    "too few columns": _narrow,
}


@pytest.mark.parametrize("lie", LIES)
def test_files_that_lie_are_refused(lie: str, saved: Path, tmp_path: Path) -> None:
    path = altered(saved, tmp_path / "lie.safetensors", LIES[lie])
    with pytest.raises(FileError, match=r"lie\.safetensors"):
        hf.CounterNet.load(path)
    about_settings = "setting" in lie or "kind" in lie
    model = hf.Model.load(path)  # the model itself is whole
    if not about_settings:
        with pytest.raises(FileError, match=r"lie\.safetensors"):
            hf.LearnedRecourse(path=str(path)).fit(model, TABLE)


def test_files_that_are_something_else_are_refused(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    for name, content in {
        "cut.safetensors": whole[: len(whole) // 2],
        "head.safetensors": whole[:100],
        "empty.safetensors": b"",
        "text.safetensors": b"not a network",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileError, match=name):
            hf.CounterNet.load(tmp_path / name)
    with pytest.raises(FileError, match="gone"):
        hf.CounterNet.load(tmp_path / "gone.safetensors")
    net = hf.CounterNet.load(saved)
    net.model_.save(tmp_path / "bare.safetensors")
    with pytest.raises(FileError, match="holds no recourse network"):
        hf.CounterNet.load(tmp_path / "bare.safetensors")
    with pytest.raises(FileError, match="cannot write"):
        net.save(tmp_path / "no" / "net.safetensors")
    hf.CounterNet(**SMALL).fit(TABLE, Y, SCHEMA).save(tmp_path / "counter.safetensors")
    with pytest.raises(FileError, match="holds a CounterNet, not a RoCourseNet"):
        hf.RoCourseNet.load(tmp_path / "counter.safetensors")


class Bomb:
    def __reduce__(self) -> Any:
        return (Path("exploded").touch, ())


def test_no_pickle_is_ever_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("net.safetensors", "net.pkl", "net.pt"):
        Path(name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(FileError):
            hf.CounterNet.load(name)
    torch.save({"a": Bomb()}, "torch.safetensors")
    with pytest.raises(FileError):
        hf.CounterNet.load("torch.safetensors")
    assert not Path("exploded").exists()
