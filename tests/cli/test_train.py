"""`holdfast train`: a model for the other commands, or one sentence about what is wrong."""

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.datasets import read_table, write_table
from support.terminal import refused, run

QUICK = ("--set", "epochs=15", "--set", "lr=0.02", "--set", "batch_size=32")
SMALL = (*QUICK, "--set", "encoder=16", "--set", "predictor=8", "--set", "generator=8", "--set", "l2=2.0")


def loans(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(20, 60, rows),
            "income": rng.normal(3000, 900, rows).round(2),
            "job": rng.choice(["clerk", "cook", "none"], rows),
        }
    )
    good = table["income"] / 900 + (table["job"] != "none") - 3.5 > 0
    return table.assign(approved=np.where(good, "yes", "no"))


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(loans(400), "loans.csv")
    people = loans(60, seed=1)
    write_table(people[people["approved"] == "no"].drop(columns="approved").head(12), "people.csv")


@pytest.mark.parametrize("kind", ["counternet", "rocoursenet"])
def test_a_recourse_network_from_table_to_answers(kind: str) -> None:
    few = ("--set", "outer=1", "--set", "inner=1") if kind == "rocoursenet" else ()
    ran = run(
        "train", kind, "loans.csv", "--target", "approved", "--fixed", "age", *SMALL, *few, "--out", "n.safetensors"
    )
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert (report["kind"], report["model"], report["rows"], report["test_rows"]) == (kind, "n.safetensors", 300, 100)
    assert report["accuracy"] > 0.8
    assert report["validity"] > 0.5
    assert report["cost_l1"] > 0
    net = hf.CounterNet.load("n.safetensors")
    assert type(net).__name__.lower() == kind
    assert net.get_params()["encoder"] == (16,)
    assert [f.change for f in net.schema_.features] == ["fixed", "free", "free"]
    # The next command is the one to type.
    (said,) = ran.err.splitlines()
    assert said.startswith("next: holdfast explain people.csv ")
    words = shlex.split(said.removeprefix("next: holdfast "))
    explained = run(*words)
    assert explained.code == 0, explained.err
    assert "holds a recourse network" in explained.err.splitlines()[0]
    cfs = hf.Counterfactuals.load("recourse.parquet")
    people = read_table("people.csv", net.schema_)
    pd.testing.assert_frame_equal(cfs.after, net.recourse(people, "yes").after)
    named = run(*words, "--method", "learned-recourse", "--quiet", "--out", "named.parquet")
    assert (named.code, named.err) == (0, "")
    pd.testing.assert_frame_equal(hf.Counterfactuals.load("named.parquet").after, cfs.after)
    searched = run(*words, "--method", "min-cost", "--out", "searched.parquet")
    assert searched.code == 0, searched.err
    assert "MinCost" in searched.err


def test_an_audit_of_a_recourse_networks_answers() -> None:
    ran = run("train", "counternet", "loans.csv", "--target", "approved", *SMALL, "--recipe", "recipe.toml")
    assert ran.code == 0, ran.err
    words = ("explain", "people.csv", "--model", "counternet.safetensors", "--target", "yes", "--out", "a.parquet")
    assert run(*words).code == 0
    audit = run("audit", "a.parquet", "--data", "loans.csv", "--recipe", "recipe.toml", "--families", "seed=3")
    assert audit.code == 0, audit.err
    assert len(json.loads(audit.out)) > 0


def test_a_plain_network_and_its_recipe() -> None:
    words = ("train", "network", "loans.csv", "--target", "approved", *QUICK, "--set", "hidden=16,8")
    ran = run(*words, "--recipe", "recipe.toml", "--quiet", "--out", "m.safetensors")
    assert (ran.code, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert report["accuracy"] > 0.8
    assert "validity" not in report
    assert hf.Recipe.load("recipe.toml") == hf.Recipe(hidden=(16, 8), epochs=15, lr=0.02, batch_size=32)
    again = run(*words, "--quiet", "--out", "same.safetensors")
    assert again.code == 0
    assert hf.Model.load("same.safetensors").fingerprint() == hf.Model.load("m.safetensors").fingerprint()
    explained = run("explain", "people.csv", "--model", "m.safetensors", "--target", "yes", "--set", "steps=10")
    assert explained.code == 0, explained.err
    assert "MinCost" in explained.err


def test_a_terminal_gets_words_and_all_rows_may_be_learnt_from() -> None:
    words = ("train", "network", "loans.csv", "--target", "approved", *QUICK)
    ran = run(*words, terminal=True)
    assert "network trained on 300 rows in " in ran.out
    assert "on 100 rows held out: right about " in ran.out
    report = json.loads(run(*words, "--test", "0").out)
    assert (report["rows"], report["test_rows"]) == (400, 0)
    assert "accuracy" not in report


@pytest.mark.filterwarnings("default")
def test_a_schema_of_ones_own() -> None:
    table = loans(400)
    hf.Schema.infer(table.drop(columns=["approved", "age"]), fixed=["job"]).save("schema.toml")
    words = ("train", "network", "loans.csv", "--target", "approved", *QUICK, "--schema", "schema.toml")
    ran = run(*words)
    assert ran.code == 0, ran.err
    assert ran.err.startswith("note: columns of 'loans.csv' that the schema does not know are left out: ['age']")
    assert hf.Model.load("network.safetensors").schema == hf.Schema.load("schema.toml")
    hf.Schema.infer(table).save("all.toml")
    refused(run(*words, "--schema", "all.toml"), "'approved' is a feature")


def test_outcomes_of_other_kinds() -> None:
    table = loans(300)
    for values in ((0, 1), (False, True)):
        write_table(table.assign(approved=np.where(table["approved"] == "yes", values[1], values[0])), "t.csv")
        assert run("train", "counternet", "t.csv", "--target", "approved", *SMALL).code == 0
        assert hf.CounterNet.load("counternet.safetensors").classes_.tolist() == list(values)
    table["approved"] = np.where(table["income"] > 4000, "gold", table["approved"])
    write_table(table, "three.parquet")
    ran = run("train", "counternet", "three.parquet", "--target", "approved", *SMALL)
    assert ran.code == 0, ran.err
    assert run("explain", "people.csv", "--model", "counternet.safetensors", "--target", "gold").code == 0


def test_bad_input_is_one_sentence() -> None:
    good = ("train", "counternet", "loans.csv", "--target", "approved", *SMALL)
    refused(run("train", "conternet", *good[2:]), "'conternet'", "did you mean 'counternet'")
    refused(run(*good, "--target", "aproved"), "no column 'aproved'", "did you mean 'approved'")
    refused(run(*good, "--set", "epoch=3"), "no setting 'epoch'", "did you mean 'epochs'")
    refused(run(*good, "--set", "seed=3"), "no setting 'seed'")
    refused(run(*good, "--set", "epochs=many"), "--set epochs=many", "a whole number")
    refused(run(*good, "--set", "epochs"), "KEY=VALUE")
    refused(run(*good, "--set", "dropout=2"), "dropout must be")
    refused(run(*good, "--set", "encoder=0"), "encoder must be")
    refused(run("train", "rocoursenet", *good[2:], "--set", "epsilon=-1"), "epsilon must be")
    refused(run("train", "network", "loans.csv", "--target", "approved", "--set", "encoder=3"), "no setting 'encoder'")
    refused(run(*good, "--fixed", "aeg"), "'aeg'", "did you mean 'age'")
    refused(run(*good, "--test", "1"), "--test must be")
    refused(run("train", "counternet", "no.csv", "--target", "approved"), "no file at 'no.csv'")
    refused(run("train", "counternet", "loans.txt", "--target", "approved"), "the extension must be one of")
    Path("bad.parquet").write_bytes(b"PAR1 but no more")
    refused(run("train", "counternet", "bad.parquet", "--target", "approved"), "cannot read 'bad.parquet'")
    write_table(loans(50).assign(approved="yes"), "one.csv")
    refused(run("train", "counternet", "one.csv", "--target", "approved"), "at least two")
    write_table(loans(1), "lone.csv")
    refused(run("train", "counternet", "lone.csv", "--target", "approved"), "at least two rows")
    assert run("train", "counternet", "loans.csv").code == 2
    assert not list(Path().glob("*.safetensors"))


def test_a_place_that_cannot_be_written_is_told_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    good = ("train", "counternet", "loans.csv", "--target", "approved", "--set", "epochs=1000000")
    refused(run(*good, "--out", "no/net.safetensors"), "there is no directory 'no'")
    refused(run(*good, "--out", "net.pt"), "must end in .safetensors")
    Path("d.safetensors").mkdir()
    refused(run(*good, "--out", "d.safetensors"), "it is a directory")
    monkeypatch.setattr(os, "access", lambda _, mode, **__: mode != os.W_OK)  # root may write everywhere
    refused(run(*good), "no permission")


def test_a_damaged_recourse_network_is_refused_by_explain() -> None:
    assert run("train", "counternet", "loans.csv", "--target", "approved", *SMALL).code == 0
    whole = Path("counternet.safetensors").read_bytes()
    Path("cut.safetensors").write_bytes(whole[: len(whole) // 2])
    refused(run("explain", "people.csv", "--model", "cut.safetensors", "--target", "yes"), "cut.safetensors")
    assert run("train", "network", "loans.csv", "--target", "approved", *QUICK).code == 0
    words = (
        "explain",
        "people.csv",
        "--model",
        "network.safetensors",
        "--target",
        "yes",
        "--method",
        "learned-recourse",
    )
    refused(run(*words), "holds no recourse network")
    ran = run(*words, "--set", "path=counternet.safetensors")
    refused(ran, "counternet.safetensors")
