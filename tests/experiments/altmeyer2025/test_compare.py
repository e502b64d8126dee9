"""Models side by side: repeats, figures and reductions by hand, and the manners of `compare`."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from experiments.altmeyer2025.compare import compare
from experiments.altmeyer2025.comparison import FREE, HELD, Comparison, reduction
from experiments.altmeyer2025.repeats import METRICS, Repeats, mean_where
from holdfast.evaluation.attribution import sensitivity
from holdfast.evaluation.plausibility import implausibility, mmd

RNG = np.random.default_rng(0)
N = 120
KIND = np.arange(N) % 3
CENTERS = np.array([[0.0, 0.0, 0.0], [2.0, 0.5, 0.0], [0.0, 2.0, 1.0]])
TABLE = pd.DataFrame(CENTERS[KIND] + RNG.normal(0, 0.4, (N, 3)), columns=["a", "b", "c"])
Y = pd.Series(np.array(["low", "mid", "top"], dtype=object)[KIND])
SCHEMA = hf.Schema.infer(TABLE)
SMALL: dict[str, Any] = {"repeats": 6, "rows": 5, "energies": (0.5, 5.0), "attacks": (0.0, 0.1)}


def network(seed: int) -> hf.Model:
    return hf.train_network(
        TABLE, Y, SCHEMA, hidden=(8,), epochs=30, lr=0.02, batch_size=40, seed=seed
    )


@pytest.fixture(scope="module")
def models() -> dict[str, hf.Model]:
    return {"plain": network(0), "other": network(1)}


@pytest.fixture(scope="module")
def study(models: dict[str, hf.Model]) -> Comparison:
    return compare(models, TABLE, y=Y, protected=["b"], seed=3, **SMALL)


# ---- reductions


def test_reductions_by_hand() -> None:
    """Paper: altmeyer2025 Later: reductions."""
    # Ratios 0.5, 1, 0.75: mean 0.75, standard deviation 0.25.
    found = reduction(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 4.0]))
    assert found["reduction"] == pytest.approx(25)
    assert found["se"] == pytest.approx(25)
    assert found["of means"] == pytest.approx(25)  # 6 / 8
    assert found["rounds"] == 3
    assert found["low"] == pytest.approx(-1)
    assert found["high"] == pytest.approx(0)
    assert not found["significant"]


def test_a_round_without_a_figure_does_not_count() -> None:
    ours = np.array([1.0, np.nan, 3.0, 5.0])
    plain = np.array([2.0, 7.0, np.nan, 0.0])
    found = reduction(ours, plain)  # a ratio in the first round alone
    assert found["reduction"] == pytest.approx(50)
    assert found["rounds"] == 1
    assert np.isnan(found["se"])
    assert found["of means"] == pytest.approx(0)  # both means are 3
    # Of the 254 resamples with both means, 4 each have the least, 1 - (2 + 3 * 7) / 4, and the
    # second largest, (3 * 5 + 3) / 4 - 0; the largest, 5, has one, which is less than half a
    # percent.
    assert (found["low"], found["high"]) == (-4.75, 4.5)
    nothing = reduction(np.array([np.nan]), np.array([1.0]))
    assert np.isnan(nothing["reduction"])
    assert not nothing["significant"]


def test_a_star_needs_an_interval_on_one_side_of_0() -> None:
    plain = 1 + np.arange(40) / 40
    assert reduction(plain - 0.1, plain)["significant"]
    assert reduction(plain + 0.1, plain)["significant"]
    wobble = np.where(np.arange(40) % 2 == 0, 0.5, -0.5)
    assert not reduction(plain + wobble, plain)["significant"]
    # 99 %: a shift of 2.3 standard errors would be enough for 95 %, and is not for this.
    error = wobble.std(ddof=0) / np.sqrt(40)
    assert not reduction(plain + wobble + 2.3 * error, plain)["significant"]
    assert reduction(plain + wobble + 3.5 * error, plain)["significant"]


def test_energies_are_averaged_out_before_ratios_are_taken(study: Comparison) -> None:
    lines = [
        ("plain", 0.5, 0, 1.0),
        ("plain", 5.0, 0, 3.0),
        ("plain", 0.5, 1, 4.0),
        ("plain", 5.0, 1, 4.0),
        ("other", 0.5, 0, 1.0),
        ("other", 5.0, 0, 2.0),
        ("other", 0.5, 1, 1.0),
        ("other", 5.0, 1, 3.0),
    ]
    values = pd.DataFrame(lines, columns=["model", "energy", "round", "cost"]).assign(case=FREE)
    values = values.assign(**{name: 1.0 for name in METRICS if name != "cost"})
    tiny = replace(study, values=values, protected=())
    # Round 0: 1.5 / 2, round 1: 2 / 4, so ratios of 0.75 and 0.5. Ratios of each energy would give
    # another mean.
    found = tiny.reductions().set_index("metric")
    assert found.loc["cost", "reduction"] == pytest.approx(37.5)
    assert found.loc["cost", "se"] == pytest.approx(100 * np.std([0.75, 0.5], ddof=1))
    assert found.loc["mmd", "reduction"] == pytest.approx(0)
    # At energy 5 alone: 2 / 3 and 3 / 4.
    one = tiny.reductions(energy=5.0).set_index("metric")
    assert one.loc["cost", "reduction"] == pytest.approx(100 * (1 - (2 / 3 + 3 / 4) / 2))
    table = tiny.table().set_index("model")
    assert table["cost"].to_dict() == pytest.approx({"plain": 3.0, "other": 1.75})
    with pytest.raises(hf.HoldfastError, match=r"no energy 2 here; there are .*0.5.*5.0"):
        tiny.table(energy=2.0)


# ---- repeats


def drawn_repeats(said: dict[str, Any], **settings: int) -> Repeats:
    x = torch.tensor(TABLE.to_numpy())
    base = {"repeats": 40, "rows": 9, "seed": 0} | settings
    rng = np.random.default_rng(base.pop("seed"))
    return Repeats.draw(said, 3, x, torch.tensor(KIND), rng=rng, **base)


def test_repeats_ask_about_rows_that_each_model_gives_the_first_class() -> None:
    rng = np.random.default_rng(1)
    said = {"m": rng.integers(0, 3, N), "n": rng.integers(0, 3, N)}
    plan = drawn_repeats(said)
    assert (plan.factual != plan.target).all()
    assert len(set(zip(plan.factual, plan.target, strict=True))) == 6  # every pair occurs
    for name, answers in said.items():
        assert plan.rows[name].shape == (40, 9)
        assert (answers[plan.rows[name]] == plan.factual[:, None]).all()
        assert len(np.unique(plan.rows[name])) > 100  # drawn all over the table
    for c, near in plan.near.items():
        assert near.shape == (int((plan.target == c).sum()), 40, 3)
        assert (near.sort(1).values == plan.data[c].sort(0).values).all()  # no row twice
    again = drawn_repeats(said)
    other = drawn_repeats(said, seed=1)
    assert (again.rows["n"] == plan.rows["n"]).all()
    assert not (other.rows["n"] == plan.rows["n"]).all()


def test_a_class_that_a_model_never_gives_is_not_left() -> None:
    plan = drawn_repeats({"m": KIND, "n": np.where(KIND == 2, 0, KIND)})
    assert set(plan.factual.tolist()) == {0, 1}
    assert set(plan.target.tolist()) == {0, 1, 2}
    with pytest.raises(
        hf.HoldfastError, match=r"the models all give \[\] to some rows.*pass more rows"
    ):
        drawn_repeats({"m": np.zeros(N), "n": np.ones(N)})


def test_means_over_the_chosen_by_hand() -> None:
    chosen = np.array([[True, False, True], [False, False, False]])
    means = mean_where(np.array([[1.0, np.nan, 2.0], [1.0, 2.0, 3.0]]), chosen)
    assert means[0] == 1.5
    assert np.isnan(means[1])


def by_round(
    model: hf.Model, method: hf.Explainer, plan: Repeats, name: str, seed: int
) -> pd.DataFrame:
    """The same figures without any batching: a call for each round, means by hand."""
    lines = list[dict[str, float]]()
    for j in range(len(plan.target)):
        c = int(plan.target[j])
        cfs = method.explain(model, TABLE.iloc[plan.rows[name][j]], model.classes[c], seed=seed)
        z = cfs.x_cf.double()[torch.tensor(cfs.found)]
        delta = z - cfs.x.double()[torch.tensor(cfs.found)]
        near = plan.near[c][int((plan.target[:j] == c).sum())]
        some = len(z) > 0
        lines.append(
            {
                "validity": float((cfs.scores.argmax(1) == c).double().mean()),
                "implausibility": float(implausibility(z, plan.data[c]).mean()) if some else np.nan,
                "mmd": max(0.0, float(mmd(z, near))) if len(z) > 1 else np.nan,
                "cost": float(delta.abs().sum(1).mean()) if some else np.nan,
                "redundancy": float((delta.abs() < 1e-5).double().mean()) if some else np.nan,
            }
        )
    return pd.DataFrame(lines)


@pytest.mark.parametrize("case", [FREE, HELD])
def test_one_batch_of_all_repeats_is_every_repeat_by_itself(
    study: Comparison, models: dict[str, hf.Model], case: str
) -> None:
    said = {
        name: np.array([list(Y.unique()).index(v) for v in m.predict(TABLE)])
        for name, m in models.items()
    }
    x = SCHEMA.encode(TABLE, torch.float64)
    labels = torch.tensor(KIND)
    plan = Repeats.draw(said, 3, x, labels, 6, 5, np.random.default_rng(3))
    fixed = SCHEMA.change(b={"change": "fixed"})
    for name, model in models.items():
        tau = 0.95
        if case == HELD:
            tau = 0.5
            model = hf.Model.of(model.module, fixed, classes=model.classes)
        for energy in (0.5, 5.0):
            expected = by_round(model, hf.ECCCo(tau=tau, energy=energy), plan, name, 3)
            mine = study.values[(study.values["model"] == name) & (study.values["case"] == case)]
            mine = mine[mine["energy"] == energy].reset_index(drop=True)
            assert (mine["to"] == np.array(model.classes)[plan.target]).all()
            for metric in METRICS:
                np.testing.assert_allclose(
                    mine[metric], expected[metric], rtol=1e-4, atol=1e-6, err_msg=metric
                )


# ---- the study


def test_the_study_has_every_case_and_holds_what_is_protected(study: Comparison) -> None:
    """Paper: altmeyer2025 Metric cost."""
    values = study.values
    table = study.table()
    assert len(values) == 2 * 2 * 2 * 6
    assert study.repeats == 6
    assert table[["case", "model"]].to_numpy().tolist() == [
        [FREE, "plain"],
        [FREE, "other"],
        [HELD, "plain"],
        [HELD, "other"],
    ]
    held = values[values["case"] == HELD]
    free = values[values["case"] == FREE]
    assert (held["redundancy"].dropna() >= 1 / 3 - 1e-9).all()
    assert (free["redundancy"].dropna() < 1 / 3).any()
    assert values["validity"].between(0, 1).all()
    assert values["validity"].max() > 0.5
    assert (values["mmd"].dropna() >= 0).all()
    hand = (
        values[(values["case"] == HELD) & (values["model"] == "other")]
        .groupby("round")["cost"]
        .mean()
        .mean()
    )
    assert table.loc[3, "cost"] == pytest.approx(hand)
    reduced = study.reductions()
    assert reduced[["case", "metric"]].to_numpy().tolist() == [
        [case, metric] for case in (FREE, HELD) for metric in ("implausibility", "mmd", "cost")
    ]
    assert set(reduced["model"]) == {"other"}


def test_a_model_beside_itself_differs_in_nothing(models: dict[str, hf.Model]) -> None:
    same = compare([models["plain"], models["plain"]], TABLE, y=Y, names=["one", "two"], **SMALL)
    one = same.values[same.values["model"] == "one"][list(METRICS)].to_numpy()
    two = same.values[same.values["model"] == "two"][list(METRICS)].to_numpy()
    np.testing.assert_array_equal(one, two)
    reduced = same.reductions()
    assert (reduced["reduction"].abs() < 1e-9).all()
    assert not reduced["significant"].any()


def test_accuracy_under_attack_is_that_of_the_attacks(
    study: Comparison, models: dict[str, hf.Model]
) -> None:
    curves = study.curves.set_index(["model", "attack", "epsilon"])["accuracy"]
    for name, model in models.items():
        right = float((model.predict(TABLE) == Y).mean())
        assert (
            curves[name, "none", 0.0]
            == curves[name, "FGSM", 0.0]
            == curves[name, "PGD", 0.0]
            == right
        )
        fgsm = hf.attacked_accuracy(
            model, TABLE, Y, epsilon=0.1, steps=1, step_size=1.0, start=False, box=False
        )
        pgd = hf.attacked_accuracy(model, TABLE, Y, epsilon=0.1, steps=40, step_size=0.1, box=False)
        assert curves[name, "FGSM", 0.1] == fgsm <= right
        assert curves[name, "PGD", 0.1] == pgd <= right
    table = study.table().set_index(["case", "model"])
    assert table.loc[(FREE, "other"), "PGD 0.1"] == curves["other", "PGD", 0.1]


def test_an_attack_on_a_linear_model_is_the_closed_form() -> None:
    """Paper: altmeyer2025 Metric attacked accuracy."""
    # FGSM moves the difference of two scores by epsilon |w|_1, and nothing keeps it in the range of
    # the data.
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5]]))
        layer.bias.zero_()
    two = pd.Series(np.where(KIND == 1, "mid", "low"))
    study = compare([layer, layer], TABLE, SCHEMA, y=two, **(SMALL | {"attacks": (0.3,)}))
    gap = (
        SCHEMA.encode(TABLE)
        @ torch.tensor([1.0, -2.0, 0.5])
        * torch.tensor(np.where(KIND == 1, 1.0, -1.0)).float()
    )
    curves = study.curves.set_index(["model", "attack"])["accuracy"]
    assert curves["model 1", "FGSM"] == pytest.approx(float((gap > 0.3 * 3.5).double().mean()))
    assert curves["model 2", "none"] == pytest.approx(float((gap > 0).double().mean()))


def test_sensitivity_tells_who_leans_on_the_protected_feature() -> None:
    flat = TABLE[["a", "b"]]
    two = pd.Series(np.where(KIND == 0, "low", "mid"))
    layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
    schema = hf.Schema.infer(TABLE[["a", "b"]])
    with torch.no_grad():
        for layer, weight in zip(layers, (3.0, 0.0), strict=True):
            layer.weight.copy_(torch.tensor([[-1.0, -weight], [1.0, weight]]))
            layer.bias.zero_()
    study = compare(
        layers, flat, schema, y=two, names=["leans", "spares"], protected=["b"], **SMALL
    )
    found = study.sensitivity(repeats=15, samples=40, points=2).set_index("model")
    assert found.loc["spares"].tolist() == [0, 0, 0]
    x = schema.encode(flat)
    labels = torch.tensor(KIND > 0).long()
    each = sensitivity(
        study.models["leans"], x, labels, torch.tensor([1]), repeats=15, samples=40, points=2
    )
    assert found.loc["leans", "median"] == pytest.approx(float(each.median()))
    assert found.loc["leans", ["low", "high"]].tolist() == pytest.approx(
        np.quantile(each, [0.025, 0.975]).tolist()
    )
    assert found.loc["leans", "median"] > 0.5
    with pytest.raises(hf.HoldfastError, match=r"compare\(..., protected=\[...\]\)"):
        replace(study, protected=()).sensitivity()


def test_methods_without_an_energy_are_asked_once(models: dict[str, hf.Model]) -> None:
    study = compare(models, TABLE, y=Y, method=hf.Descent.generic(steps=60), **SMALL)
    assert len(study.values) == 2 * 6
    assert study.values["energy"].isna().all()
    assert study.table()["validity"].min() > 0.5
    assert json.loads(study.to_json())["values"][0]["energy"] is None


def test_methods_that_learn_from_data_are_fitted_for_each_model(
    models: dict[str, hf.Model],
) -> None:
    method = hf.Gravitational(steps=60, external=0.05)
    study = compare(models, TABLE, y=Y, method=method, **SMALL)
    assert not method.is_fitted
    assert study.table()["validity"].min() > 0.5
    calibrated = hf.ECCCo(conformal=0.5, steps=20).fit(models["plain"], TABLE, Y)
    q = calibrated.q_
    compare(models, TABLE, y=Y, method=calibrated, **SMALL)
    assert calibrated.q_ == q
    assert calibrated.energy == 5.0


def test_models_by_name_in_a_list_or_bare_are_the_same(
    study: Comparison, models: dict[str, hf.Model]
) -> None:
    listed = compare(
        [*models.values()], TABLE, y=Y, names=["plain", "other"], protected=["b"], seed=3, **SMALL
    )
    bare = {name: model.module for name, model in models.items()}
    wrapped = compare(bare, TABLE, SCHEMA, y=Y.to_numpy(), protected="b", seed=3, **SMALL)
    for same in (listed, wrapped):
        pd.testing.assert_frame_equal(same.values, study.values)
        pd.testing.assert_frame_equal(same.curves, study.curves)


def test_words_and_files_say_what_the_tables_say(study: Comparison, tmp_path: Any) -> None:
    text = repr(study)
    assert "6 repeats of 5 rows, ECCCo(tau=0.95), protected: 'b'" in text
    assert "Percent less than plain" in text
    line = study.reductions().iloc[0]
    assert f"{line['reduction']:.2f} +- {line['se']:.2f}" in text
    study.save(tmp_path / "study.json")
    content = json.loads((tmp_path / "study.json").read_text())
    assert content["method"] == "ECCCo(tau=0.95)"
    assert content["protected"] == ["b"]
    assert content["table"][1]["cost"] == pytest.approx(study.table()["cost"][1])
    assert content["reductions"][0]["reduction"] == pytest.approx(line["reduction"])
    assert len(content["values"]) == len(study.values)
    assert set(content["models"]) == {"plain", "other"}


def test_the_caller_is_left_alone(
    models: dict[str, hf.Model], capsys: pytest.CaptureFixture[str]
) -> None:
    module = models["plain"].module.train()
    before = torch.get_rng_state()
    schema = models["plain"].schema
    state = np.random.get_state()[1].copy()
    method = hf.ECCCo(steps=15)
    frame = TABLE.copy()
    compare(models, frame, y=Y, method=method, protected=["b"], progress=True, **SMALL).sensitivity(
        repeats=2, samples=5
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == state).all()
    assert module.training
    assert models["plain"].schema is schema
    assert repr(method) == "ECCCo(steps=15)"
    pd.testing.assert_frame_equal(frame, TABLE)
    assert capsys.readouterr() == ("", "")
    module.eval()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": []}, "at least two models.* got 0"),
        ({"names": ["one"]}, "for each of 2 models, got \\['one'\\]"),
        ({"names": ["one", "one"]}, "a name of its own"),
        (
            {"models": [nn.Linear(3, 3), nn.Linear(3, 3)]},
            "'model 1' is a bare torch module; pass schema=",
        ),
        ({"models": [3, 4]}, "'model 1' is a int, neither .* hf.Model.of"),
        ({"method": "eccco"}, "like hf.ECCCo\\(\\), got 'eccco'"),
        (
            {"method": hf.NearestNeighbor(n_counterfactuals=2)},
            "one answer per row, NearestNeighbor has 2",
        ),
        ({"repeats": 0}, "repeats must be .* at least 1, got 0"),
        ({"rows": 2.5}, "rows must be an integer .* got 2.5"),
        ({"energies": []}, "at least one energy"),
        ({"energies": [1, -2]}, "energies must be numbers and at least 0, got -2"),
        ({"attacks": [float("nan")]}, "attacks must be .* got nan"),
        ({"seed": -1}, "seed must be .* at least 0, got -1"),
        ({"protected": ["bb"]}, "unknown feature 'bb'; did you mean 'b'"),
        ({"y": Y[:5]}, "got 5 for 120 rows"),
        ({"y": pd.Series(["low", "no"] * 60)}, "'no'"),
    ],
)
def test_errors_name_the_thing_the_value_and_the_fix(
    models: dict[str, hf.Model], change: dict[str, Any], words: str
) -> None:
    given: dict[str, Any] = {"models": list(models.values()), "X": TABLE, "y": Y} | SMALL | change
    with pytest.raises(hf.HoldfastError, match=words):
        compare(**given)


def test_models_that_cannot_be_compared_are_refused(models: dict[str, hf.Model]) -> None:
    plain = models["plain"]
    other = hf.Model.of(
        plain.module, hf.Schema.infer(TABLE, scaling="minmax"), classes=plain.classes
    )
    turned = hf.Model.of(plain.module, SCHEMA, classes=["top", "mid", "low"])
    with pytest.raises(
        hf.HoldfastError, match=r"'model 1' and 'model 2' encode rows differently.* use one schema"
    ):
        compare([plain, other], TABLE, y=Y, **SMALL)
    with pytest.raises(hf.HoldfastError, match=r"'model 1' has the classes .*'model 2'"):
        compare([plain, turned], TABLE, y=Y, **SMALL)


def test_regression_models_are_refused() -> None:
    prices = hf.Model.of(lambda X: X.to_numpy().sum(1), SCHEMA, outputs="value")
    with pytest.raises(
        hf.HoldfastError, match="'a' is a regression model; only classifiers can be compared"
    ):
        compare({"a": prices, "b": prices}, TABLE, y=TABLE["a"])


def test_the_discrepancy_looks_at_the_first_hundred_valid_ones() -> None:
    said = {"m": KIND}
    plan = drawn_repeats(said, repeats=4, rows=150)
    z = torch.tensor(TABLE.to_numpy())
    rng = np.random.default_rng(2)
    valid = rng.random((4, 150)) < np.array([[1.0], [0.8], [0.3], [0.0]])
    found = plan._mmd(z, plan.rows["m"], valid)
    for j in range(3):
        c = int(plan.target[j])
        first = plan.rows["m"][j][valid[j]][:100]
        near = plan.near[c][int((plan.target[:j] == c).sum())]
        assert found[j] == pytest.approx(
            max(0.0, float(mmd(z[torch.tensor(first)], near))), abs=1e-9
        )
    assert np.isnan(found[3])
