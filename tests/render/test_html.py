"""Charts, the notebook table and the report: what they say, and that nothing gets in or out."""

import importlib
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast as hf
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import MissingExtraError, SettingError
from holdfast.render import html as page
from holdfast.render.charts import theme as plot
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema
from holdfast.target import Status
from support.answers import RUN, made
from support.pages import EVIL, Reader


@pytest.fixture(scope="module")
def loans() -> Counterfactuals:
    """A linear model, answered for real: wealth can be raised, age is fixed, one row is fine
    already."""
    schema = Schema(
        (
            Feature("net_wealth", scale=100.0, seen=(0, 1000), bounds=(0, 500)),
            Feature("age", "integer", "fixed", scale=10.0, dtype="int64"),
            Feature("home", "category", "fixed", levels=("rent", "own")),
        )
    )
    net = torch.nn.Linear(4, 1, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.5, 0.0, 0.0]]))
        net.bias.fill_(-6.0)
    rows = pd.DataFrame(
        {
            "net_wealth": [100.0, 250.0, 900.0, 100.0],
            "age": [30, 40, 60, 10],
            "home": ["own", "rent", "own", "own"],
        },
        index=pd.Index([3, "b", (1, 2), None], dtype=object, tupleize_cols=False),
    )
    return hf.MinCost(norm=1).explain(
        hf.Model.of(net, schema, classes=["bad", "good"]), rows, "good"
    )


def some(
    n: int, status: Status = Status.FOUND, *, per_row: int = 1, name: str = "x"
) -> Counterfactuals:
    """n answers that raise a number and, every second one, switch a category."""
    schema = Schema(
        (
            Feature(name, seen=(0, 100)),
            Feature("y", "category", levels=("a", "b")),
            Feature("still"),
        )
    )
    before = pd.DataFrame({name: np.arange(n, dtype=float), "y": ["a"] * n, "still": [0.5] * n})
    after = before.assign(
        **{name: before[name] + 1, "y": ["b" if i % 2 else "a" for i in range(n)]}
    )
    reasons = [""] * n if status == Status.FOUND else ["out of reach"] * n
    source = [i // per_row for i in range(n)]
    return made(schema, before, after, codes=[status] * n, reasons=reasons, source=source)


def written(cfs: Counterfactuals, folder: Path) -> str:
    path = page.write_report(cfs, folder / "deep" / "report.html")
    assert path == folder / "deep" / "report.html"
    return path.read_text(encoding="utf-8")


# ---- the notebook table


def test_table_shows_only_what_changes(loans: Counterfactuals) -> None:
    rows = Reader(page.changes_table(loans)).rows
    assert rows[0] == ["row", "status", "probability", "net wealth"]  # nothing about age and home
    assert rows[1][:2] == ["3", "found"]
    assert rows[1][3] == "100 → 451"  # 600 - 0.5 * 30 * 10 = 450, and a hair; rounded away from 100
    assert rows[2][3] == "250 → 401"
    assert rows[3][:2] == ["(1, 2)", "already met"]
    assert rows[3][3] == "the model gives the wanted outcome already"
    assert rows[4][:2] == ["None", "not found"]
    assert loans.reasons[3] in rows[4][3]


def test_unchanged_cells_are_a_dim_dot() -> None:
    rows = Reader(page.changes_table(some(2))).rows
    assert rows == [
        ["row", "status", "probability", "x", "y"],
        ["0", "found", "73.1%", "0 → 1", "·"],
        ["1", "found", "73.1%", "1 → 2", "a → b"],
    ]


def test_table_is_capped_and_says_so() -> None:
    text = page.changes_table(some(120), most=7)
    assert len(Reader(text).rows) == 1 + 7
    assert "The first 7 of 120 rows." in text
    assert "The first" not in page.changes_table(some(7), most=7)


def test_table_styles_nothing_but_itself(loans: Counterfactuals) -> None:
    style = re.search(r"<style>(.*?)</style>", page.changes_table(loans), re.DOTALL)
    assert style
    selectors = [s.strip() for rule in re.findall(r"([^{}]+){", style[1]) for s in rule.split(",")]
    assert selectors
    assert all(s.startswith(".holdfast-changes") for s in selectors)


def test_notebooks_get_the_table(loans: Counterfactuals) -> None:
    assert loans._repr_html_() == page.changes_table(loans)


# ---- the report


def test_report_says_all_there_is(loans: Counterfactuals, tmp_path: Path) -> None:
    text = written(loans, tmp_path)
    assert (
        "2 of 4 rows can get the wanted outcome (good), 1 has it already; half of the answers "
        "change 1 feature" in text
    )
    for value in (
        loans.run.model,
        loans.run.schema,
        loans.run.created,
        loans.run.settings,
        loans.run.version,
    ):
        assert value in text
    assert "Raise net wealth from 100 to 451." in text
    assert loans.reasons[3][1:] in text.replace("&#39;", "'")
    assert "with nothing to change, in row (1, 2)." in text
    assert text.count("<svg") == 2
    assert (
        "<title>Row b: Raise net wealth from 250 to 401. Cost 1.50, probability 50.0%.</title>"
        in text
    )
    assert "<title>net wealth: raised in 100% of answers (2).</title>" in text


def test_figures_are_those_of_the_answers(loans: Counterfactuals) -> None:
    figures = {name: value for name, value, _ in page.figures(loans)}
    assert figures == {
        "Rows": "4",
        "Found": "2",
        "Already met": "1",
        "Not found": "1",
        "Median cost": "2.50",  # 3.5 and 1.5 units of 100
        "Median changes": "1",
        "Mean probability": "50.0%",
        "Time": f"{loans.run.seconds:.2f} s",
    }


def test_report_needs_no_network(loans: Counterfactuals, tmp_path: Path) -> None:
    text = written(loans, tmp_path)
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r"https?://|//\w+\.\w+/|url\(|@import", without_names)
    loads = [
        attrs
        for _, attrs in Reader(text).tags
        if {"src", "href", "srcset", "data", "action"} & set(attrs)
    ]
    assert not loads
    assert "default-src 'none'" in text


def test_everything_is_escaped(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature(EVIL, seen=(0, 10), unit=EVIL),
            Feature("level", "category", levels=("a", EVIL), label="the " + EVIL),
        )
    )
    before = pd.DataFrame({EVIL: [1.0, 1.0], "level": ["a", "a"]}, index=[EVIL, "fine"])
    after = pd.DataFrame({EVIL: [2.0, 1.0], "level": [EVIL, "a"]}, index=[EVIL, "fine"])
    run = replace(RUN, target=EVIL, settings=EVIL, method=EVIL)
    codes = [Status.FOUND, Status.NOT_FOUND]
    reasons = ["", EVIL]
    cfs = made(schema, before, after, codes=codes, reasons=reasons, run=run)
    for text, scripts in ((page.changes_table(cfs), 0), (written(cfs, tmp_path), 1)):
        reader = Reader(text)
        assert reader.count("script") == scripts  # the report's own filter, and no other
        assert reader.count("img") == 0
        assert not [a for _, attrs in reader.tags for a in attrs if a.startswith("on")]
        assert "alert" in text


def test_report_has_headings_and_table_headers(loans: Counterfactuals, tmp_path: Path) -> None:
    reader = Reader(written(loans, tmp_path))
    assert (reader.count("h1"), reader.count("h2"), reader.count("main")) == (1, 5, 1)
    assert all("scope" in attrs for tag, attrs in reader.tags if tag == "th")
    labels = {attrs.get("aria-labelledby") for tag, attrs in reader.tags if tag == "section"}
    assert labels <= {attrs.get("id") for _, attrs in reader.tags}
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_report_without_rows(tmp_path: Path) -> None:
    text = written(some(0), tmp_path)
    assert "No rows were asked about." in text
    assert "<svg" not in text
    assert "nan" not in text.lower()
    assert Reader(page.changes_table(some(0))).rows == []


def test_report_without_answers(tmp_path: Path) -> None:
    text = written(some(3, Status.NOT_FOUND), tmp_path)
    assert "0 of 3 rows can get the wanted outcome (good)." in text
    assert "<svg" not in text
    assert text.count("Out of reach") == 3
    assert "nan" not in text.lower()


def test_report_with_several_answers_per_row(tmp_path: Path) -> None:
    cfs = some(6, per_row=3)
    text = written(cfs, tmp_path)
    assert "2 of 2 rows" in text
    assert "6 answers sought" in text
    names = [row[0] for row in Reader(text).rows if row[0] != "Row"]
    assert names == [f"{i}answer {i % 3 + 1} of 3" for i in range(6)]
    assert [row[1] for row in Reader(page.changes_table(cfs)).rows[:4]] == [
        "answer",
        "1 of 3",
        "2 of 3",
        "3 of 3",
    ]


def test_ten_thousand_rows_are_capped_and_fast(tmp_path: Path) -> None:
    cfs = some(10_000)
    start = time.perf_counter()
    text = written(cfs, tmp_path)
    assert time.perf_counter() - start < 20  # about 2 s; charts take most of it
    assert "The first 500 of 10,000 answers are shown." in text
    assert "2,000 of 10,000 shown" in text
    assert len(Reader(text).rows) == 1 + 500
    assert len(text) < 3_000_000


def test_long_targets_are_cut(tmp_path: Path) -> None:
    cfs = some(2)
    cfs = replace(cfs, run=replace(cfs.run, target="good, " * 10_000))
    assert len(written(cfs, tmp_path)) < 60_000


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2024-01-01", periods=2),
        pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]),
        pd.Index([1.5, np.nan]),
        pd.CategoricalIndex(["u", "v"]),
        pd.Index([7, 7]),
    ],
)
def test_index_labels_of_any_type(index: pd.Index, tmp_path: Path) -> None:
    cfs = some(2)
    cfs = replace(cfs, before=cfs.before.set_axis(index), after=cfs.after.set_axis(index))
    names = [row[0] for row in Reader(page.changes_table(cfs)).rows[1:]]
    assert names == plot.row_names(index)
    assert len(set(names)) == len(index.unique())
    assert f"<title>Row {names[0]}: " in written(cfs, tmp_path)


# ---- charts


def values(chart: object, layer: int) -> list[dict[str, object]]:
    spec = chart.to_dict()
    return spec["datasets"][spec["layer"][layer]["data"]["name"]]


def test_scatter_has_a_dot_per_answer_and_a_rule(loans: Counterfactuals) -> None:
    chart = plot.cost_probability(loans)
    (rule,) = values(chart, 0)
    dots = values(chart, 1)
    assert rule["level"] == pytest.approx(0.5)
    assert [d["row"] for d in dots] == ["3", "b"]
    assert [d["cost"] for d in dots] == pytest.approx([3.5, 1.5], abs=1e-3)
    assert [d["sentence"] for d in dots] == list(loans.sentences()[:2])
    low, high = chart.to_dict()["layer"][1]["encoding"]["y"]["scale"]["domain"]
    assert low <= min(float(str(d["probability"])) for d in dots)
    assert high == 1


def test_decision_level_follows_the_target() -> None:
    goal = some(1).goal
    assert plot.decision_level(goal) == 0.5
    assert plot.decision_level(replace(goal, margin=np.log(4), soft=True, k=3)) == pytest.approx(
        0.8
    )
    # the best of three may have any probability above 1/3
    assert plot.decision_level(replace(goal, k=3)) is None


def test_three_classes_have_no_rule(tmp_path: Path) -> None:
    cfs = some(3)
    cfs = made(cfs.schema, cfs.before, cfs.after, classes=3)
    assert len(plot.cost_probability(cfs).to_dict()["layer"]) == 1
    assert "decision at" not in written(cfs, tmp_path)


def test_bars_count_raised_lowered_and_switched() -> None:
    cfs = some(4)
    cfs.after.loc[3, "x"] = 0.0
    shares, order = plot.change_shares(cfs)
    assert order == ["x", "y"]
    assert shares[["feature", "way", "count", "share"]].values.tolist() == [
        ["x", "raised", 3, 0.75],
        ["x", "lowered", 1, 0.25],
        ["y", "switched", 2, 0.5],
    ]


@pytest.mark.parametrize("ending", ["svg", "png", "html", "SVG"])
@pytest.mark.parametrize("chart", [plot.cost_probability, plot.changed_features])
def test_charts_are_saved_by_ending(chart: object, ending: str, tmp_path: Path) -> None:
    # a picture without answers is empty, not an error
    for cfs in (some(3), some(2, Status.NOT_FOUND)):
        path = plot.save(chart(cfs), tmp_path / f"chart.{ending}")
        start = path.read_bytes()[:400]
        assert {"svg": b"<svg", "png": b"PNG", "html": b"<html"}[ending.lower()] in start


def test_saved_html_works_offline(tmp_path: Path) -> None:
    path = plot.save(plot.changed_features(some(3)), tmp_path / "chart.html")
    assert not re.search(r"<(script|link)[^>]+(src|href)=", path.read_text(encoding="utf-8"))


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"'chart.pdf'.*'.png', '.svg', '.html'"):
        plot.save(plot.changed_features(some(1)), tmp_path / "chart.pdf")


@pytest.mark.parametrize("gone", ["altair", "vl_convert"])
def test_without_the_extra_the_error_says_what_to_install(
    gone: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = importlib.import_module

    def absent(name: str, package: str | None = None) -> object:
        if name == gone:
            raise ImportError(name)
        return real(name, package)

    cfs = some(2)
    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"holdfast\[plot\]"):
        page.write_report(cfs, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    assert Reader(page.changes_table(cfs)).rows[1][3] == "0 → 1"  # the notebook table does without
    if gone == "altair":
        with pytest.raises(MissingExtraError, match="altair"):
            plot.cost_probability(cfs)
