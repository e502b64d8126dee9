"""Crossings: the published unit case, spreads by hand, what does not fit, and the pictures."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast.errors import FileError, ModelError, SchemaError, SettingError
from holdfast.evaluation.cross_validity import (
    CrossValidity,
    Spread,
    cross_validity,
    spread,
    validity_matrix,
)
from holdfast.nn.module_stack import stack_of
from holdfast.render.charts.shift import data_size, pareto, strength, validity_heatmap
from holdfast.render.charts.theme import COLOURS
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.recipe import Recipe
from holdfast.target import Status

X1 = torch.tensor([[1.0, 0, 1], [1, 1, 0], [0, 1, 0], [0, 1, 1]])
X2 = torch.tensor([[1.0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 0]])
CLASSES = ["no", "yes"]


@dataclass(eq=False, repr=False)
class Flip(hf.Explainer):
    """The other value of one feature."""

    feature: int = 0

    def search(self, problem: hf.SearchProblem) -> Tensor:
        z = problem.x.clone()
        z[:, self.feature] = 1 - z[:, self.feature]
        return problem.feasible.project(z)


def reads(feature: int, sign: float = 1.0) -> nn.Module:
    """yes where a feature is 1."""
    module = nn.Sequential(nn.Linear(3, 1))
    with torch.no_grad():
        module[0].weight.copy_(sign * torch.eye(3)[feature][None])
        module[0].bias.fill_(-sign * 0.5)
    return module


def model_of(feature: int) -> hf.Model:
    return hf.Model.of(reads(feature), hf.Schema.box(3), classes=CLASSES)


def bank_of(families: dict[str, Sequence[nn.Module]]) -> ModelBank:
    groups = list[ModelGroup]()
    for name, modules in families.items():
        stack = stack_of(modules[0], len(modules))
        states = [stack.named(dict(m.state_dict())) for m in modules]
        stack.load({key: torch.stack([s[key] for s in states]) for key in states[0]})
        groups.append(ModelGroup(name, stack))
    return ModelBank(tuple(groups), hf.Schema.box(3), tuple(CLASSES), Recipe(), 0)


def unit_case() -> tuple[dict[str, hf.Counterfactuals], ModelBank]:
    answers = {"one": Flip(0).explain(model_of(0), X1), "two": Flip(2).explain(model_of(2), X2)}
    return answers, bank_of({"one": [reads(0)], "two": [reads(2)]})


# ---- by hand


def test_unit_case() -> None:
    """f1 = x[0] and f2 = x[2], answers flip the feature that their model reads.

    Paper: guo2023 Metric validity, Metric robust validity, Metric proximity.
    """
    answers, bank = unit_case()
    some = cross_validity(answers, bank)
    assert some.names == ("one", "two")
    assert some.matrix.tolist() == [[1.0, 0.5], [0.75, 1.0]]
    assert some.validity == Spread(1.0, 0.0)
    assert some.robust_validity == (pytest.approx(0.625), pytest.approx(0.125))
    assert some.cost.tolist() == [1.0, 1.0]
    assert some.proximity == Spread(1.0, 0.0)
    assert (some.rows, some.models) == ((4, 4), (1, 1))
    assert some.neighbours() == Spread(0.5, 0.0)
    assert some.neighbours(-1) == Spread(0.75, 0.0)
    assert some.decrease().tolist() == [[0.0, 0.5], [0.25, 0.0]]
    frame = some.table()
    assert frame.loc["two", "one"] == 0.75
    assert (frame.index.name, frame.columns.name) == ("answers of", "models of")
    assert list(some.measures().index) == ["validity", "robust validity", "proximity"]
    assert "2 subsets, answers for 8 rows, 2 models" in repr(some)
    assert "<table" in some._repr_html_()


def test_families_in_another_order_and_of_several_models() -> None:
    """Rows of the matrix follow the answers; an entry is the mean over a family's models."""
    answers, _ = unit_case()
    bank = bank_of({"two": [reads(2), reads(2, -1.0), reads(2), reads(0)], "one": [reads(0)]})
    some = cross_validity(answers, bank)
    # Of answers 1 the models of two keep 0.5, 0.5, 0.5 and 1; of answers 2: 1, 0, 1 and 0.75.
    assert some.matrix.tolist() == [[1.0, 0.625], [0.75, 0.6875]]
    assert some.models == (1, 4)


def test_names_that_are_numbers_match_their_texts() -> None:
    answers, _ = unit_case()
    bank = bank_of({"2004": [reads(0)], "2005": [reads(2)]})
    some = hf.cross_validity(dict(zip((2004, 2005), answers.values(), strict=True)), bank)
    assert some.names == ("2004", "2005")
    assert isinstance(some, hf.CrossValidity)


def test_rows_without_an_answer_count_and_rows_without_need_do_not(tmp_path: Path) -> None:
    answers, bank = unit_case()
    codes = np.array([Status.FOUND, Status.ALREADY_MET, Status.NOT_FOUND, Status.NOT_FOUND])
    answers["one"] = replace(answers["one"], status_codes=codes)
    some = cross_validity(answers, bank)
    # Model two accepts the second and the fourth of all four: no answer is left that it accepts.
    assert some.matrix[0].tolist() == [pytest.approx(1 / 3), 0.0]
    assert some.rows == (3, 4)
    assert some.cost[0] == 1.0
    every = cross_validity(answers, bank, attempts=True)
    assert every.matrix[0].tolist() == [1.0, pytest.approx(1 / 3)]
    none = {**answers, "one": replace(answers["one"], status_codes=np.full(4, Status.NOT_FOUND))}
    lost = cross_validity(none, bank)
    assert lost.matrix[0].tolist() == [0.0, 0.0]
    assert math.isnan(lost.cost[0])
    content = json.loads(lost.to_json(), parse_constant=pytest.fail)
    assert content["cost"] == [None, 1.0]
    lost.save(tmp_path / "lost.json")
    assert math.isnan(CrossValidity.load(tmp_path / "lost.json").cost[0])
    idle = {**answers, "one": replace(answers["one"], status_codes=np.full(4, Status.ALREADY_MET))}
    with pytest.raises(SettingError, match="no row of 'one' needed an answer"):
        cross_validity(idle, bank)


def test_a_row_with_several_answers_counts_once() -> None:
    answers, bank = unit_case()
    answers["one"] = replace(answers["one"], source=np.array([0, 0, 1, 1]))
    some = cross_validity(answers, bank)
    assert some.rows == (2, 4)
    assert some.matrix[0].tolist() == [1.0, 1.0]  # model two keeps the second answer of either row


def test_another_category_costs_two() -> None:
    frame = pd.DataFrame({"colour": pd.Categorical(["r", "g", "b"] * 2, ["r", "g", "b"])})
    schema = hf.Schema.infer(frame)
    module = nn.Sequential(nn.Linear(3, 1))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[-1.0, 1.0, -1.0]]))
        module[0].bias.zero_()
    model = hf.Model.of(module, schema, classes=CLASSES)
    cfs = hf.Descent(steps=100, relax="softmax").explain(model, frame, "yes")
    assert cfs.status_codes.tolist() == [Status.FOUND, Status.ALREADY_MET, Status.FOUND] * 2
    stack = stack_of(module, 1)
    stack.load({key: v[None] for key, v in stack.named(dict(module.state_dict())).items()})
    some = cross_validity(
        {"a": cfs}, ModelBank((ModelGroup("a", stack),), schema, tuple(CLASSES), Recipe(), 0)
    )
    assert some.cost.tolist() == [2.0]


def crossing(matrix: Sequence[Sequence[float]], cost: Sequence[float]) -> CrossValidity:
    k = len(cost)
    names = tuple(f"s{i}" for i in range(k))
    return CrossValidity(
        names, np.array(matrix, dtype=float), np.array(cost, dtype=float), (5,) * k, (1,) * k
    )


def test_spreads_by_hand() -> None:
    some = crossing([[0.9, 0.1, 0.2], [0.3, 0.8, 0.4], [0.5, 0.6, 1.0]], [1.0, 2.0, 6.0])
    assert some.validity == (pytest.approx(0.9), pytest.approx(math.sqrt(0.02 / 3)))
    # 0.1 .. 0.6: mean 0.35, squares of the distances 2 (0.0625 + 0.0225 + 0.0025) = 0.175, by 6
    assert some.robust_validity == (pytest.approx(0.35), pytest.approx(math.sqrt(0.175 / 6)))
    assert some.proximity == (pytest.approx(3.0), pytest.approx(math.sqrt(14 / 2)))
    assert some.neighbours() == (pytest.approx(0.25), pytest.approx(0.15))
    assert some.neighbours(2) == (pytest.approx(0.2), 0.0)
    assert np.allclose(some.decrease(), [[0, 0.8, 0.7], [0.5, 0, 0.4], [0.5, 0.4, 0]])
    assert some.measures().loc["robust validity", "sd"] == some.robust_validity.sd
    for width in (0, 3, -3):
        with pytest.raises(SettingError, match="between 1 and 2"):
            some.neighbours(width)


def test_json_round_trip(tmp_path: Path) -> None:
    some = crossing([[1 / 3, 0.1], [0.7, 2 / 3]], [math.pi, 0.1])
    file = tmp_path / "crossed.json"
    some.save(file)
    again = CrossValidity.load(file)
    assert np.array_equal(again.matrix, some.matrix)
    assert np.array_equal(again.cost, some.cost)
    assert (again.names, again.rows, again.models) == (some.names, some.rows, some.models)
    assert again.to_json() == some.to_json()
    assert (
        json.loads(some.to_json())["measures"]["robust validity"] == some.robust_validity._asdict()
    )
    for wrong in ("", "[]", "{}", some.to_json().replace('"s1"', '"s1", "s2"')):
        file.write_text(wrong)
        with pytest.raises(FileError, match="is not a cross-validity"):
            CrossValidity.load(file)
    with pytest.raises(FileError, match="no file at"):
        CrossValidity.load(tmp_path / "nothing.json")
    with pytest.raises(FileError, match=r"must be one of '.json', '.csv'"):
        some.save(tmp_path / "crossed.parquet")


def test_one_subset_has_no_robust_validity() -> None:
    some = crossing([[0.9]], [1.0])
    with pytest.raises(SettingError, match="only 's0'"):
        _ = some.robust_validity
    assert list(some.measures().index) == ["validity", "proximity"]
    assert json.loads(some.to_json(), parse_constant=pytest.fail)["measures"]["proximity"] == {
        "mean": 1.0,
        "sd": None,
    }


def test_plain_arrays() -> None:
    held = [
        np.array([[1, 1, 1, 1], [0, 1, 0, 1]], dtype=bool),
        np.array([[1, 0], [1, 1]], dtype=bool),
    ]
    assert validity_matrix(held).tolist() == [[1.0, 0.5], [0.5, 1.0]]
    assert spread([1.0, 3.0]) == Spread(2.0, 1.0)
    assert spread([1.0, 3.0], sample=True) == Spread(2.0, pytest.approx(math.sqrt(2)))
    assert validity_matrix([]).shape == (0, 0)
    for wrong in ([held[0]], [held[0], held[1][0]], [held[0], np.zeros((2, 0))]):
        with pytest.raises(SettingError, match="by its rows"):
            validity_matrix(wrong)
    with pytest.raises(SettingError, match="empty list of values"):
        spread([])


# ---- what does not fit


def test_names_that_do_not_match() -> None:
    answers, bank = unit_case()
    with pytest.raises(SettingError, match=r"only answers for 'two' and only models for 'three'"):
        cross_validity(answers, bank_of({"one": [reads(0)], "three": [reads(2)]}))
    with pytest.raises(SettingError, match=r"only models for 'two'"):
        cross_validity({"one": answers["one"]}, bank)
    with pytest.raises(SettingError, match=r"different names, got 1, '1'"):
        cross_validity({1: answers["one"], "1": answers["two"]}, bank)
    for wrong in ((answers["one"], bank), (answers, model_of(0)), ({"one": 3}, bank)):
        with pytest.raises(SettingError, match="cross_validity takes answers by subset"):
            cross_validity(*wrong)


def test_banks_that_do_not_fit() -> None:
    answers, bank = unit_case()
    with pytest.raises(ModelError, match=r"answers of 'one'.*classes"):
        cross_validity(answers, replace(bank, classes=("bad", "good")))
    with pytest.raises(SchemaError, match=r"answers of 'one'.*schema"):
        cross_validity(answers, replace(bank, schema=hf.Schema.box(["a", "b", "c"])))


def test_the_asked_model_may_be_there_but_no_guide() -> None:
    answers, bank = unit_case()
    guide = bank.origins()[1]
    answers["one"] = replace(answers["one"], run=replace(answers["one"].run, guided_by=(guide,)))
    with pytest.raises(
        SettingError, match=r"answers of 'one': 1 of the bank's 2 models guided the search"
    ):
        cross_validity(answers, bank)


def test_real_tables() -> None:
    """From tables to a crossing: the diagonal is that of an audit by hand, and two years agree but
    for their noise."""
    rng = np.random.default_rng(0)
    tables = dict[str, tuple[pd.DataFrame, "pd.Series[str]"]]()
    for year, slope in (("2004", 0.0), ("2005", 1.0)):
        X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
        tables[year] = X, pd.Series(np.where(X["a"] + slope * X["b"] > 0, "yes", "no"))
    schema = hf.Schema.infer(pd.concat([X for X, _ in tables.values()]))
    recipe = Recipe(hidden=(8,), epochs=30)
    bank = ModelBank.from_tables(recipe, tables, schema, models=2)
    models = {year: bank.model(2 * i) for i, year in enumerate(tables)}
    pgd = hf.MinEpsilonPGD(radius=4.0, radii=8, steps=10)
    answers = {year: pgd.explain(models[year], tables[year][0].head(30), "yes") for year in tables}
    some = cross_validity(answers, bank)
    for i, year in enumerate(tables):
        summary = hf.audit(answers[year], bank).by_family()
        assert some.matrix[i].tolist() == pytest.approx(
            [summary.loc[y, "end to end"] for y in tables]
        )
        assert some.cost[i] == pytest.approx(answers[year].cost("l1")[answers[year].found].mean())
    assert some.validity.mean > some.robust_validity.mean


# ---- pictures


def data_of(chart: dict, marker: str) -> pd.DataFrame:
    """The only dataset of a chart with this column."""
    found = [rows for rows in chart["datasets"].values() if rows and marker in rows[0]]
    assert len(found) == 1
    return pd.DataFrame(found[0])


def marks(chart: dict) -> list[str]:
    return [layer["mark"]["type"] for layer in chart.get("layer", [chart])]


def test_heatmap() -> None:
    some = crossing([[1.0, 0.5], [0.75, 1.0]], [1.0, 1.0])
    for chart in (some.plot(), validity_heatmap(some.matrix, some.names)):
        content = chart.to_dict()
        cells = data_of(content, "validity")
        assert cells[["answers", "models", "validity"]].to_numpy().tolist() == [
            ["s0", "s0", 1.0],
            ["s0", "s1", 0.5],
            ["s1", "s0", 0.75],
            ["s1", "s1", 1.0],
        ]
        assert marks(content) == ["rect", "text"]
        assert content["layer"][0]["encoding"]["color"]["scale"]["domain"] == [0, 1]
        assert content["layer"][0]["encoding"]["y"]["sort"] == ["s0", "s1"]
        assert cells["words"][1] == "Answers of s0 on models of s1: 50.0%."
    # no room for numbers
    assert marks(validity_heatmap(np.eye(16), range(16)).to_dict()) == ["rect"]
    for wrong in (np.eye(3), np.ones((2, 3)), np.ones(2)):
        with pytest.raises(SettingError, match="needs a matrix of 2 by 2"):
            validity_heatmap(wrong, ["a", "b"])


def test_pareto() -> None:
    table = pd.DataFrame(
        {"method": ["A", "A", "B"], "cost": [2.0, 1.0, 3.0], "validity": [0.9, 0.7, 1.0]}
    )
    content = pareto(table).to_dict()
    assert data_of(content, "cost").to_dict("list") == table.to_dict("list")
    assert marks(content) == ["line", "circle"]
    line = content["layer"][0]["encoding"]
    assert line["order"]["field"] == "cost"
    assert line["color"]["scale"] == {"domain": ["A", "B"], "range": COLOURS[:2]}
    assert line["y"]["scale"]["domain"] == [0, 1]
    ordered = pareto(table.assign(setting=[0.1, 0.2, 0.1], other="x"), title="Validity").to_dict()
    assert ordered["layer"][0]["encoding"]["order"]["field"] == "setting"
    assert ordered["layer"][0]["encoding"]["y"]["title"] == "Validity"
    assert "other" not in data_of(ordered, "cost")
    with pytest.raises(SettingError, match="no column 'cost', 'validity'"):
        pareto(table[["method"]])
    with pytest.raises(SettingError, match="empty"):
        pareto(table.head(0))


@pytest.mark.parametrize(("draw", "at"), [(strength, "strength"), (data_size, "share")])
def test_curves_with_bands(draw: object, at: str) -> None:
    table = pd.DataFrame(
        {
            "method": ["A", "A", "B"],
            at: [0.01, 1.0, 1.0],
            "mean": [0.9, 0.5, 0.1],
            "sd": [0.2, 0.1, float("nan")],
        }
    )
    content = draw(table).to_dict()
    rows = data_of(content, "low")
    assert rows["low"].tolist() == pytest.approx([0.7, 0.4, 0.1])
    assert rows["high"].tolist() == pytest.approx([1.0, 0.6, 0.1])
    assert marks(content) == ["area", "line"]
    band, line = (layer["encoding"] for layer in content["layer"])
    assert (band["y"]["field"], band["y2"]["field"], line["y"]["field"]) == ("low", "high", "mean")
    assert band["x"]["field"] == line["x"]["field"] == at
    assert "type" not in line["x"]["scale"]
    assert draw(table, log=True).to_dict()["layer"][1]["encoding"]["x"]["scale"]["type"] == "log"
    with pytest.raises(SettingError, match="values above 0"):
        draw(table.assign(**{at: 0.0}), log=True)
    with pytest.raises(SettingError, match="no column 'sd'"):
        draw(table.drop(columns="sd"))


def test_more_methods_than_colours() -> None:
    table = pd.DataFrame({"method": range(9), "cost": 1.0, "validity": 0.5})
    scale = pareto(table).to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == [str(i) for i in range(9)]
    assert len(scale["range"]) == 9
