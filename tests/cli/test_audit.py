"""`holdfast audit` from the outside."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import holdfast as hf
from holdfast.cli.main import main
from support.terminal import set_to

RECIPE = "hidden = [16]\nepochs = 8\nbatch_size = 32\n"


@pytest.fixture(scope="module")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lender's files: training rows, recipe, answers."""
    here = tmp_path_factory.mktemp("lender")
    data = hf.datasets.german_credit()
    train, test = data.split()
    (here / "recipe.toml").write_text(RECIPE)
    model = hf.Recipe.load(here / "recipe.toml").fit(
        train.X, train.y, data.schema, classes=["denied", "approved"]
    )
    model.save(here / "model.safetensors")
    train.X.to_csv(here / "rows.csv", index=False)
    train.X.assign(outcome="perhaps").to_csv(here / "odd.csv", index=False)
    train.X.assign(outcome=train.y).to_csv(here / "train.csv", index=False)
    refused = test.X[(model.predict(test.X) == "denied").to_numpy()].head(12)
    refused.to_csv(here / "people.csv", index=False)
    hf.MinCost(norm=2).explain(model, refused, "approved").save(here / "answers.parquet")
    return here


@pytest.fixture
def run(lender: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(lender)

    def call(*words: str) -> SimpleNamespace:
        code = main(words)
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return call


APPROVED = ("explain", "people.csv", "--model", "model.safetensors", "--target", "approved")
EXPLAIN = (*APPROVED, "--method", "stable-neighbor-search")
AUDIT = ("audit", "answers.parquet", "--data", "train.csv", "--recipe", "recipe.toml")
BANK = ("audit", "answers.parquet", "--bank", "nothing.safetensors")


def test_audit_says_what_the_library_says(run: Any, lender: Path) -> None:
    words = (*AUDIT, "--families", "seed=4,leave_one_out=3", "--seed", "5")
    ran = run(*words, "--save-bank", "bank.safetensors")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    bank = hf.ModelBank.load(lender / "bank.safetensors")
    assert bank.families == {"seed": 4, "leave_one_out": 3}
    audit = hf.audit(hf.Counterfactuals.load(lender / "answers.parquet"), bank)
    assert [a["survival"] for a in told["answers"]] == audit.survival().tolist()
    assert told["bank"] == bank.fingerprint()
    assert "No certificates: " in ran.err
    assert "needs at least 59 models, and there are 7" in ran.err
    assert told["certified"]["answers"] is None
    assert {a["certified"] for a in told["answers"]} == {None}
    again = run(*words, "--quiet")
    assert again.out == ran.out
    assert again.err == ""


def test_audit_writes_table_and_picture(run: Any, lender: Path) -> None:
    ran = run(*AUDIT, "--families", "seed=3", "--out", "held.csv", "--plot", "held.svg")
    assert ran.code == 0, ran.err
    table = pd.read_csv(lender / "held.csv")
    assert {"status", "survival", "models", "bound", "certified"} <= set(table.columns)
    assert (table["models"] == 3).all()
    assert (lender / "held.svg").read_text().startswith("<svg")


def test_other_tables_are_families_of_their_own(run: Any, lender: Path) -> None:
    whole = pd.read_csv(lender / "train.csv", keep_default_na=False)
    whole.head(400).to_csv(lender / "old.csv", index=False)
    whole.tail(300).to_csv(lender / "new.csv", index=False)
    words = (
        "audit",
        "answers.parquet",
        "--recipe",
        "recipe.toml",
        "--table",
        "2007=old.csv",
        "--table",
        "2008=new.csv",
    )
    told = json.loads(run(*words, "--quiet").out)
    assert {name: row["models"] for name, row in told["by family"].items()} == {
        "all": 2,
        "2007": 1,
        "2008": 1,
    }
    told = json.loads(run(*words, "--data", "train.csv", "--families", "seed=2", "--quiet").out)
    assert {name: row["models"] for name, row in told["by family"].items()} == {
        "all": 4,
        "seed": 2,
        "2007": 1,
        "2008": 1,
    }


def test_families_left_out_are_the_documented_ones(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()

    def retrain(*_: Any, families: Any, **__: Any) -> None:
        asked.append(families)
        raise hf.HoldfastError("enough")

    monkeypatch.setattr(hf.ModelBank, "retrain", retrain)
    assert run(*AUDIT).err.endswith("enough\n")
    assert asked == [{"retrain": 100}]
    assert "default: retrain=100" in " ".join(run("audit", "--help").out.replace("│", " ").split())


def test_shares_are_not_rounded_to_certainty(run: Any) -> None:
    ran = run(*AUDIT, "--families", "seed=2", "--hold", "0.995", "--confidence", "0.999")
    each = (
        "holds for at least 99.5% of models made as those of the bank were, with 99.9% confidence"
    )
    assert (
        f"No certificates: a certificate that an answer {each} needs at least 1379 models"
        in ran.err
    )
    assert f"{each} needs at least 1379 models" in json.loads(ran.out)["statement"]


def test_the_rule_is_asked_for_and_printed(run: Any, lender: Path) -> None:
    """Answers that were asked to be approved with a probability of 0.9 are judged by it, unless the
    class is to do."""
    likely = (*APPROVED, "--probability", "0.9", "--method", "min-cost")
    assert run(*likely, "--out", "likely.parquet").code == 0
    words = (
        "audit",
        "likely.parquet",
        "--data",
        "train.csv",
        "--recipe",
        "recipe.toml",
        "--families",
        "retrain=60",
    )
    told = dict[str, Any]()
    for rule, more in (("target", ()), ("class", ("--rule", "class"))):
        ran = run(*words, *more)
        assert ran.code == 0, ran.err
        told[rule] = json.loads(ran.out)
        assert told[rule]["rule"] == rule
        assert f"(rule: {rule})" in ran.err
        assert told[rule]["covers"] in ran.err
    assert told["target"]["asked"] == "approved with probability 0.9"
    assert (
        told["target"]["by family"]["all"]["survival"]
        < told["class"]["by family"]["all"]["survival"] - 0.2
    )
    assert "rule must be 'target' or 'class'" in run(*words, "--rule", "all").err


def test_strict_tells_that_something_is_not_certified(run: Any) -> None:
    assert run(*AUDIT, "--families", "seed=3", "--strict").code == 3


def test_a_bank_that_guided_the_search_is_refused(run: Any) -> None:
    assert (
        run(*AUDIT, "--families", "seed=4", "--seed", "9", "--save-bank", "guide.safetensors").code
        == 0
    )
    settings = set_to(bank="guide.safetensors", steps=20, start="descent", start__steps=100)
    words = (*EXPLAIN, "--data", "rows.csv", *settings, "--out", "moved.parquet")
    assert run(*words).code == 0
    ran = run("audit", "moved.parquet", "--bank", "guide.safetensors")
    assert ran.code == 2
    assert "4 of the bank's 4 models guided the search" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("audit", "answers.parquet"), "give --data FILE and --recipe FILE"),
        (("audit", "nothing.parquet", "--bank", "b"), "no file"),
        (("audit", "answers.parquet", "--bank", "nothing.safetensors"), "bank"),
        (("audit", "answers.parquet", "--bank", "train.csv"), "not a readable bank"),
        ((*AUDIT, "--families", "seed"), "NAME=COUNT"),
        ((*AUDIT, "--families", "seed=2", "--table", "2007"), "NAME=FILE"),
        ((*AUDIT, "--families", ""), "NAME=COUNT"),
        ((*AUDIT, "--families", "seed=3,seed=2"), "--families names 'seed' twice"),
        ((*AUDIT, "--families", "seed=3, seed =2"), "--families names 'seed' twice"),
        ((*AUDIT, "--table", "y1=train.csv", "--table", "y1=odd.csv"), "--table names 'y1' twice"),
        (
            (*BANK, "--data", "train.csv"),
            "with --bank FILE nothing is retrained, so --data has no effect",
        ),
        ((*BANK, "--recipe", "recipe.toml"), "so --recipe has no effect"),
        ((*BANK, "--table", "y1=train.csv"), "so --table has no effect"),
        ((*BANK, "--families", "seed=100,leave_one_out=100"), "so --families has no effect"),
        ((*AUDIT, "--families", "sed=3"), "did you mean 'seed'"),
        ((*AUDIT, "--families", "seed=0"), "at least one model"),
        ((*AUDIT, "--families", "seed=2", "--outcome", "y"), "no column 'y'"),
        ((*AUDIT, "--families", "seed=2", "--outcome", "duration"), "is a feature"),
        (
            ("audit", "answers.parquet", "--data", "odd.csv", "--recipe", "recipe.toml"),
            "the model's classes are",
        ),
        (
            (*AUDIT, "--families", "seed=2", "--hold", "1.5"),
            "hold must lie between 0 and 1",
        ),
        (
            (*AUDIT, "--families", "seed=2", "--confidence", "0"),
            "confidence must lie between 0 and 1",
        ),
        ((*AUDIT, "--families", "seed=2", "--plot", "x.gif"), "extension"),
        ((*AUDIT, "--families", "seed=2", "--out", "x.txt"), "extension"),
        (
            ("audit", "answers.parquet", "--data", "people.csv", "--recipe", "recipe.toml"),
            "--outcome COLUMN",
        ),
        (
            ("audit", "answers.parquet", "--data", "train.csv", "--recipe", "nothing.toml"),
            "cannot read",
        ),
        (("audit", "answers.parquet", "--data", "train.csv", "--recipe", "train.csv"), "not TOML"),
        ((*EXPLAIN, "--set", "start__steps=3"), "give start=METHOD first"),
        ((*EXPLAIN, "--set", "start=descnt"), "did you mean 'descent'"),
        ((*EXPLAIN, "--set", "bank=nothing.safetensors"), "bank"),
    ],
)
def test_bad_input_is_one_sentence(run: Any, words: tuple[str, ...], told: str) -> None:
    ran = run(*words)
    assert ran.code == 2, ran
    assert told in ran.err
    assert "Traceback" not in ran.err
