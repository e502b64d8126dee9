"""`holdfast train network` and `recourse`: a model for the other commands, or one sentence about
what is wrong."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer

import holdfast as hf
from holdfast.cli.main import app
from holdfast.datasets import read_table, write_table
from support.loans import write_loans
from support.terminal import program, refused, run, set_to

QUICK = set_to(epochs=15, lr=0.02, batch_size=32)
SMALL = (*QUICK, *set_to(encoder=16, predictor=8, generator=8, l2=2.0))
LOANS = ("loans.csv", "--target", "approved")
NETWORK = ("train", "network", *LOANS)
COUNTERNET = ("train", "recourse", *LOANS, "--kind", "counternet")


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
    write_loans(loans, 400)


@pytest.mark.parametrize("kind", ["counternet", "rocoursenet"])
def test_a_recourse_network_from_table_to_answers(kind: str) -> None:
    few = set_to(outer=1, inner=1) if kind == "rocoursenet" else ()
    ran = run(
        "train",
        "recourse",
        *LOANS,
        "--kind",
        kind,
        "--fixed",
        "age",
        *SMALL,
        *few,
        "--out",
        "n.safetensors",
    )
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert (report["kind"], report["model"], report["rows"], report["test_rows"]) == (
        kind,
        "n.safetensors",
        300,
        100,
    )
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
    ran = run(
        *COUNTERNET,
        *SMALL,
        "--recipe",
        "recipe.toml",
    )
    assert ran.code == 0, ran.err
    words = (
        "explain",
        "people.csv",
        "--model",
        "recourse.safetensors",
        "--target",
        "yes",
        "--out",
        "a.parquet",
    )
    assert run(*words).code == 0
    audit = run(
        "audit",
        "a.parquet",
        "--data",
        "loans.csv",
        "--recipe",
        "recipe.toml",
        "--families",
        "seed=3",
    )
    assert audit.code == 0, audit.err
    assert len(json.loads(audit.out)) > 0


def test_a_plain_network_and_its_recipe() -> None:
    words = (*NETWORK, *QUICK, *set_to(hidden="16,8"))
    ran = run(*words, "--recipe", "recipe.toml", "--quiet", "--out", "m.safetensors")
    assert (ran.code, ran.err) == (0, "")
    report = json.loads(ran.out)
    assert report["accuracy"] > 0.8
    assert "validity" not in report
    assert hf.Recipe.load("recipe.toml") == hf.Recipe(
        hidden=(16, 8), epochs=15, lr=0.02, batch_size=32
    )
    again = run(*words, "--quiet", "--out", "same.safetensors")
    assert again.code == 0
    assert (
        hf.Model.load("same.safetensors").fingerprint()
        == hf.Model.load("m.safetensors").fingerprint()
    )
    explained = run(
        "explain", "people.csv", "--model", "m.safetensors", "--target", "yes", "--set", "steps=10"
    )
    assert explained.code == 0, explained.err
    assert "MinCost" in explained.err


def test_a_terminal_gets_words_and_all_rows_may_be_learnt_from() -> None:
    words = (*NETWORK, *QUICK)
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
    words = (
        *NETWORK,
        *QUICK,
        "--schema",
        "schema.toml",
    )
    ran = run(*words)
    assert ran.code == 0, ran.err
    assert ran.err.startswith(
        "note: columns of 'loans.csv' that the schema does not know are left out: ['age']"
    )
    assert hf.Model.load("network.safetensors").schema == hf.Schema.load("schema.toml")
    hf.Schema.infer(table).save("all.toml")
    refused(run(*words, "--schema", "all.toml"), "'approved' is a feature")


def test_outcomes_of_other_kinds() -> None:
    table = loans(300)
    for values in ((0, 1), (False, True)):
        write_table(
            table.assign(approved=np.where(table["approved"] == "yes", values[1], values[0])),
            "t.csv",
        )
        assert run("train", "recourse", "t.csv", *COUNTERNET[3:], *SMALL).code == 0
        assert hf.CounterNet.load("recourse.safetensors").classes_.tolist() == list(values)
    table["approved"] = np.where(table["income"] > 4000, "gold", table["approved"])
    write_table(table, "three.parquet")
    ran = run("train", "recourse", "three.parquet", *COUNTERNET[3:], *SMALL)
    assert ran.code == 0, ran.err
    assert (
        run("explain", "people.csv", "--model", "recourse.safetensors", "--target", "gold").code
        == 0
    )


def test_bad_input_is_one_sentence() -> None:
    good = (*COUNTERNET, *SMALL)
    refused(
        run("train", "recourse", *LOANS, "--kind", "conternet"),
        "'conternet'",
        "did you mean 'counternet'",
    )
    refused(run(*good, "--target", "aproved"), "no column 'aproved'", "did you mean 'approved'")
    refused(run(*good, "--set", "epoch=3"), "no setting 'epoch'", "did you mean 'epochs'")
    refused(run(*good, "--set", "seed=3"), "no setting 'seed'")
    refused(run(*good, "--set", "epochs=many"), "epochs=many", "an integer")
    refused(run(*good, "--set", "epochs"), "KEY=VALUE")
    refused(run(*good, "--set", "dropout=2"), "dropout must be")
    refused(run(*good, "--set", "encoder=0"), "encoder must be")
    refused(run("train", "recourse", *LOANS, "--set", "epsilon=-1"), "epsilon must be")
    refused(
        run(*NETWORK, "--set", "encoder=3"),
        "no setting 'encoder'",
    )
    refused(run(*good, "--fixed", "aeg"), "'aeg'", "did you mean 'age'")
    refused(run(*good, "--test", "1"), "--test must be")
    refused(run("train", "recourse", "no.csv", *LOANS[1:]), "no file at 'no.csv'")
    refused(
        run("train", "recourse", "loans.txt", *LOANS[1:]),
        "the extension must be one of",
    )
    Path("bad.parquet").write_bytes(b"PAR1 but no more")
    refused(
        run("train", "recourse", "bad.parquet", *LOANS[1:]),
        "cannot read 'bad.parquet'",
    )
    write_table(loans(50).assign(approved="yes"), "one.csv")
    refused(run("train", "recourse", "one.csv", *LOANS[1:]), "at least two")
    write_table(loans(1), "lone.csv")
    refused(run("train", "recourse", "lone.csv", *LOANS[1:]), "at least two rows")
    assert run("train", "recourse", "loans.csv").code == 2
    assert not list(Path().glob("*.safetensors"))


def test_a_place_that_cannot_be_written_is_told_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = (*COUNTERNET, "--set", "epochs=1000000")
    refused(run(*good, "--out", "no/net.safetensors"), "there is no directory 'no'")
    refused(run(*good, "--out", "net.pt"), "must end in .safetensors")
    Path("d.safetensors").mkdir()
    refused(run(*good, "--out", "d.safetensors"), "it is a directory")
    # root may write everywhere
    monkeypatch.setattr(os, "access", lambda _, mode, **__: mode != os.W_OK)
    refused(run(*good), "no permission")


def test_a_damaged_recourse_network_is_refused_by_explain() -> None:
    assert run(*COUNTERNET, *SMALL).code == 0
    whole = Path("recourse.safetensors").read_bytes()
    Path("cut.safetensors").write_bytes(whole[: len(whole) // 2])
    refused(
        run("explain", "people.csv", "--model", "cut.safetensors", "--target", "yes"),
        "cut.safetensors",
    )
    assert run(*NETWORK, *QUICK).code == 0
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
    ran = run(*words, "--set", "path=recourse.safetensors")
    refused(ran, "recourse.safetensors")


# ---- the commands


COMMANDS = ("network", "recourse", "counterfactual", "images")


def test_there_is_a_command_for_each_kind_of_model() -> None:
    group: Any = typer.main.get_command(app)
    assert tuple(group.commands["train"].commands) == COMMANDS
    assert run("train", "forest", *LOANS).code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen(command: str) -> None:
    screen = {**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    ran = program("train", command, "--help", env=screen)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.strip().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "…" not in ran.stdout  # nothing is cut off


def test_commands_have_only_their_own_options() -> None:
    group: Any = typer.main.get_command(app)
    options = {
        name: {param.name for param in command.params}
        for name, command in group.commands["train"].commands.items()
    }
    assert {"objective", "generator", "tau", "history"} <= options["counterfactual"]
    for other in ("network", "recourse", "images"):
        assert not {"objective", "generator", "tau", "l_div", "history", "plot"} & options[other]
    assert "hidden" not in options["recourse"]
    assert "kind" not in options["network"]
    assert not {"target", "schema", "fixed", "recipe"} & options["images"]


def test_a_network_may_be_attacked_while_it_learns() -> None:
    assert run(*NETWORK, *QUICK, "--epsilon", "0.2", "--set", "attack=fgsm").code == 0
    attacked = hf.Model.load("network.safetensors")
    assert run(*NETWORK, *QUICK).code == 0
    assert hf.Model.load("network.safetensors").fingerprint() != attacked.fingerprint()
    refused(run(*NETWORK, "--epsilon", "-1"), "epsilon must be")
    refused(run(*NETWORK, "--epsilon", "1", "--set", "epsilon=2"), "epsilon is given twice")


def test_settings_of_the_shift_are_those_of_a_rocoursenet_only() -> None:
    refused(run(*COUNTERNET, "--set", "outer=1"), "counternet has no setting 'outer'")
    words = ("train", "recourse", *LOANS, *SMALL, *set_to(outer=1, ascend="false"))
    assert run(*words).code == 0
    net = hf.RoCourseNet.load("recourse.safetensors")
    assert net.shift == hf.Shift(outer=1, ascend=False)
