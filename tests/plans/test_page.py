"""The page, the notebook table and the terminal table of plans: what they say, and that nothing
gets in or out."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.auditing import certificates
from holdfast.plans import page
from holdfast.render.charts.audit import survival_cost
from holdfast.render.html import changes_table
from holdfast.schema.feature import Feature
from holdfast.schema.schema import Schema
from holdfast.target import Status
from support.answers import RUN, made
from support.pages import EVIL, Reader
from support.plans import ALIKE, UNLIKE, six_plans


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "deep" / "plans.html"
    assert six_plans().report(path) == path
    return path.read_text(encoding="utf-8")


def test_the_headline_and_the_figures_are_counts(text: str) -> None:
    told = (
        "1 of 6 people have a plan that holds (good), 1 has it already; 1 plan is certified: "
        "each holds for at least "
        "95% of models retrained on rows drawn again from this table, with 95% confidence."
    )
    assert told in text
    figures = {name: (value, small) for name, value, small in page.figures(six_plans())}
    value, small = figures.pop("Plans that hold")
    assert (value, small.split()[0]) == ("1", "17%")
    assert figures == {
        "People": ("6", "1 have it already"),
        "Certified": ("1", "each for 95% of models, 95% sure; all at once at least 97%"),
        "Fragile": ("2", "too few models accept"),
        "No plan": ("2", "1 proved impossible"),
        "Median cost": ("2.00", "of plans that hold, see below"),
        "Mean survival": ("100.0%", "of plans that hold"),
        "Judges": ("100", "models that had no part in the search"),
    }


def test_the_figures_of_several_plans_that_hold_are_over_all_of_them() -> None:
    figures = {name: value for name, value, _ in page.figures(six_plans(hold=0.8))}
    assert figures["Plans that hold"] == figures["Certified"] == "2"
    assert figures["Median cost"] == "4.00"  # of 2 and 6
    assert figures["Mean survival"] == "97.5%"


def test_the_table_has_only_what_changes_and_how_surely_it_holds(text: str) -> None:
    rows = Reader(text).rows
    assert rows[:2] == [
        ["Person", "What to change", "Cost", "Holds on", "Certificate"],
        ["Ann", "money €100 → €200", "2.00", "100 of 100 (at least 97%)", "✓ certified"],
    ]
    assert rows[2] == ["Person", "In words", "Cost", "Accepted by"]


def test_bars_are_drawn_to_the_scale_that_the_note_names(tmp_path: Path) -> None:
    plans = six_plans(hold=0.8)
    assert page.bar_start(six_plans()) == 0.9
    assert page.bar_start(plans) == 0.7
    shown = plans.report(tmp_path / "plans.html").read_text(encoding="utf-8")
    assert "Bars run from 70% to 100%" in shown
    shares = re.findall(r'<b style="left: ([\d.]+)%">', shown)
    asked = re.findall(r'<u style="left: ([\d.]+)%">', shown)
    assert [float(share) for share in shares] == [100, 83.33]  # 95 - 70 of 30 points
    assert [float(hold) for hold in asked] == [33.33, 33.33]


def test_people_without_a_plan_that_holds_are_there_with_the_reason(text: str) -> None:
    rows = Reader(text).rows
    reason = "too few for a certificate."
    ben = (
        "Raise money from €100 to €300 and change home from rent to own, but it holds on 95 of "
        f"100 judges, {reason}"
    )
    assert ["Ben", ben, "6.00", "95 of 100"] in rows
    cyd = f"Raise money from €100 to €400, but it holds on 60 of 100 judges, {reason}"
    assert ["Cyd", cyd, "6.00", "60 of 100"] in rows
    assert ["Dee", "not found", "Out of reach"] in rows
    assert ["Eve", "impossible", "No leaf"] in rows
    assert "with nothing to change, in row Fay." in text


def test_the_page_says_how_it_was_checked_and_what_a_certificate_covers(text: str) -> None:
    assert "The search was guided by 3 retrained models." in text
    assert (
        "put before 100 judges, which had no part in finding it; a judge accepts a plan if it "
        "gives good" in text
    )
    assert certificates.covers(["retrain"]) in text
    assert "alibrat" not in text


def test_the_page_says_how_near_the_model_is_to_retrained_ones(text: str, tmp_path: Path) -> None:
    near = "trained again on the same rows a model lies 0.4 deviations of retraining away from it."
    assert near in " ".join(page.checked(six_plans(likeness=ALIKE)))
    assert "deviations of retraining" not in text  # nobody has compared them
    unlike = six_plans(likeness=UNLIKE)
    shown = unlike.report(tmp_path / "unlike.html").read_text(encoding="utf-8")
    assert page.headline(unlike).startswith(
        "No certificates: the retrained models were not made as the model in use was"
    )
    assert page.headline(unlike).endswith("2 of 6 people have a plan (good), 1 has it already.")
    assert [row[-1] for row in Reader(shown).rows[1:3]] == ["not certified", "not certified"]
    assert "✓" not in shown


def test_the_scatter_has_a_dot_per_plan_fragile_ones_too(text: str) -> None:
    assert text.count("<svg") == 2
    for words in (
        "Ann: cost 2.00, accepted by 100 of 100",
        "Cyd: cost 6.00, accepted by 60 of 100",
    ):
        assert f"<title>Row {words} models.</title>" in text
    low, high = survival_cost(six_plans().audit).to_dict()["layer"][0]["encoding"]["y"]["scale"][
        "domain"
    ]
    assert (low, high) == (0.5, 1)


def test_the_page_needs_no_network(text: str) -> None:
    assert not re.search(
        r"https?://|//\w+\.\w+/|url\(|@import", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    )
    assert not [
        a for _, a in Reader(text).tags if {"src", "href", "srcset", "data", "action"} & set(a)
    ]
    assert "default-src 'none'" in text


def test_the_page_has_headings_and_table_headers(text: str) -> None:
    reader = Reader(text)
    assert (reader.count("h1"), reader.count("h2"), reader.count("main")) == (1, 7, 1)
    assert all("scope" in attrs for tag, attrs in reader.tags if tag == "th")
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs.get("aria-labelledby") for tag, attrs in reader.tags if tag == "section"} <= set(
        ids
    )


def test_too_few_models_are_named_in_place_of_certificates(tmp_path: Path) -> None:
    few = six_plans(judges=50)
    assert page.headline(few).endswith(
        "1 has it already; there are too few retrained models for certificates."
    )
    shown = few.report(tmp_path / "few.html").read_text(encoding="utf-8")
    assert "needs at least 59 models, and there are 50" in shown
    assert Reader(shown).rows[1][-1] == "too few models"
    assert ("Certified", "n/a", "each for 95% of models, 95% sure") in page.figures(few)
    assert "at least 94.1%" in few.describe()


def nobody() -> hf.Plans:
    return six_plans()[[]]


def test_nobody_and_nothing_found(tmp_path: Path) -> None:
    shown = nobody().report(tmp_path / "nobody.html").read_text(encoding="utf-8")
    assert "No people were asked about." in shown
    assert nobody().describe().startswith("0 people: none.")
    none = six_plans()[[3, 4]].report(tmp_path / "none.html").read_text(encoding="utf-8")
    assert "0 of 2 people have a plan that holds (good)" in none
    for page_text in (shown, none):
        assert "<svg" not in page_text
        assert not re.search(r"\bnan\b", page_text.lower())


def test_everything_is_escaped(tmp_path: Path) -> None:
    schema = Schema(
        (Feature(EVIL, seen=(0, 10), unit=EVIL), Feature("level", "category", levels=("a", EVIL)))
    )
    before = pd.DataFrame({EVIL: [1.0] * 3, "level": ["a"] * 3}, index=[EVIL, "b", "c"])
    after = before.assign(**{EVIL: [2.0, 2.0, 1.0], "level": [EVIL, EVIL, "a"]})
    codes = [Status.FOUND, Status.FRAGILE, Status.NOT_FOUND]
    run = replace(RUN, target=EVIL, settings=EVIL, method=EVIL)
    cfs = made(schema, before, after, codes=codes, reasons=["", EVIL, EVIL], run=run)
    plans = hf.Plans(hf.Audit(cfs, np.ones((60, 3), bool), np.array([EVIL] * 60), EVIL))
    for shown, scripts in (
        (plans.report(tmp_path / "p.html").read_text(encoding="utf-8"), 1),
        (plans._repr_html_(), 0),
    ):
        reader = Reader(shown)
        assert reader.count("script") == scripts
        assert reader.count("img") == 0
        assert not [a for _, attrs in reader.tags for a in attrs if a.startswith("on")]
        assert "alert" in shown


def test_the_notebook_table() -> None:
    shown = six_plans()._repr_html_()
    rows = Reader(shown).rows
    assert rows[0] == ["person", "status", "what changes", "cost", "holds on", "certificate"]
    assert rows[1] == [
        "Ann",
        "found",
        "money: €100 → €200",
        "2.00",
        "100 of 100 (at least 97%)",
        "✓ certified",
    ]
    assert rows[3][:2] == ["Cyd", "fragile"]
    assert "it holds on 60 of 100 judges, too few for a certificate" in rows[3][2]
    assert rows[3][5] == "not certified"
    assert rows[5] == ["Eve", "impossible", "no leaf", "", "", ""]
    assert certificates.covers(["retrain"]) in shown
    style = re.search(r"<style>(.*?)</style>", shown, re.DOTALL)
    selectors = [s.strip() for rule in re.findall(r"([^{}]+){", style[1]) for s in rule.split(",")]
    assert all(s.startswith(".holdfast-plans") for s in selectors)
    assert "The first 2 of 6." in page.plans_table(six_plans(), most=2)


def test_the_terminal_gets_one_line_per_change_no_wider_than_it_is() -> None:
    lines = page.plans_text(six_plans(), 5, 100).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-1] == "The first 5 of 6."
    cells = [re.split(r" {2,}", line.strip()) for line in lines]
    assert cells[0] == ["person", "what changes", "cost", "holds on", "certified"]
    assert cells[2] == ["Ann", "money: €100 → €200", "2.00", "100 of 100", "yes"]
    assert cells[3] == ["at least 97%"]
    assert cells[4] == ["Ben", "money: €100 → €300", "6.00", "95 of 100", "no"]
    assert cells[5] == ["home: rent → own", "at least 89.7%"]
    said = " ".join(cell for line in cells[6:8] for cell in line)
    assert said == "fragile: it holds on 95 of 100 judges, too few for a certificate"
    assert ["Eve", "impossible: no leaf"] in cells
    assert max(map(len, page.plans_text(six_plans(), 5, 60).splitlines())) <= 60
    assert "[red]" in page.plans_text(named("[red]"), 5, 60)  # no markup


def named(level: str) -> hf.Plans:
    schema = Schema((Feature("level", "category", levels=("a", level)),))
    before = pd.DataFrame({"level": ["a"]})
    cfs = made(schema, before, before.assign(level=[level]))
    return hf.Plans(hf.Audit(cfs, np.ones((60, 1), bool), np.array(["seed"] * 60), "b"))


def test_several_plans_of_a_person_are_told_apart(tmp_path: Path) -> None:
    six = six_plans(hold=0.8)
    cfs = replace(six.cfs, source=np.array([0, 0, 1, 2, 3, 4]))
    plans = replace(six, audit=replace(six.audit, cfs=cfs))
    shown = plans.report(tmp_path / "several.html").read_text(encoding="utf-8")
    assert "1 of 5 people have a plan that holds" in shown
    assert [row[0] for row in Reader(shown).rows[1:3]] == ["Annplan 1 of 2", "Benplan 2 of 2"]
    assert "Ann (1 of 2)" in plans.describe()


def test_other_tables_say_that_an_answer_is_fragile(tmp_path: Path) -> None:
    cfs = six_plans().cfs
    assert cfs.sentences()["Cyd"].startswith(
        "Raise money from €100 to €400, but it holds on 60 of 100 judges"
    )
    assert Reader(changes_table(cfs)).rows[3][:2] == ["Cyd", "fragile"]
    assert "€100 to €400, but it holds on 60 of 100 judges" in cfs.report(
        tmp_path / "plain.html"
    ).read_text(encoding="utf-8")
