"""`holdfast train`: a model for the other commands, or one sentence about what is wrong."""

import contextlib
import json
import os
import re
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer

import holdfast as hf
from holdfast.cli.main import app, main
from holdfast.cli.options import BAD_INPUT
from holdfast.cli.train import labelled
from holdfast.datasets import held_out, read_table, write_table
from holdfast.training.counterfactual.generators import GeneratorSettings
from support.terminal import Ran, Stream, program, refused, run

QUICK = ("--set", "epochs=15", "--set", "lr=0.02", "--set", "batch_size=32")
SMALL = (
    *QUICK,
    "--set",
    "encoder=16",
    "--set",
    "predictor=8",
    "--set",
    "generator=8",
    "--set",
    "l2=2.0",
)
EPOCHS = 5
GOOD = ("train", "counterfactual", "weighed_loans.csv", "--target", "approved")
BRIEF = ("--epochs", EPOCHS, "--hidden", "16", "--set", "lr=0.02", "--set", "batch_size=32")


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


def weighed(rows: int, seed: int = 0) -> pd.DataFrame:
    """`weight` has all its digits: a copy of it that went through an encoding would show."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(20, 60, rows),
            "weight": rng.normal(70, 9, rows) / 3,
            "income": rng.normal(3000, 900, rows).round(2),
            "job": rng.choice(["clerk", "cook", "none"], rows),
        }
    )
    good = table["income"] / 900 + table["age"] / 40 + (table["job"] != "none") - 4.5 > 0
    return table.assign(approved=np.where(good, "yes", "no"))


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for table, name, rows in ((loans, "", 400), (weighed, "weighed_", 300)):
        write_table(table(rows), f"{name}loans.csv")
        people = table(60, seed=1)
        write_table(
            people[people["approved"] == "no"].drop(columns="approved").head(12),
            f"{name}people.csv",
        )


@pytest.mark.parametrize("kind", ["counternet", "rocoursenet"])
def test_a_recourse_network_from_table_to_answers(kind: str) -> None:
    few = ("--set", "outer=1", "--set", "inner=1") if kind == "rocoursenet" else ()
    ran = run(
        "train",
        kind,
        "loans.csv",
        "--target",
        "approved",
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
        "train",
        "counternet",
        "loans.csv",
        "--target",
        "approved",
        *SMALL,
        "--recipe",
        "recipe.toml",
    )
    assert ran.code == 0, ran.err
    words = (
        "explain",
        "people.csv",
        "--model",
        "counternet.safetensors",
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
    words = (
        "train",
        "network",
        "loans.csv",
        "--target",
        "approved",
        *QUICK,
        "--set",
        "hidden=16,8",
    )
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
    words = (
        "train",
        "network",
        "loans.csv",
        "--target",
        "approved",
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
        assert run("train", "counternet", "t.csv", "--target", "approved", *SMALL).code == 0
        assert hf.CounterNet.load("counternet.safetensors").classes_.tolist() == list(values)
    table["approved"] = np.where(table["income"] > 4000, "gold", table["approved"])
    write_table(table, "three.parquet")
    ran = run("train", "counternet", "three.parquet", "--target", "approved", *SMALL)
    assert ran.code == 0, ran.err
    assert (
        run("explain", "people.csv", "--model", "counternet.safetensors", "--target", "gold").code
        == 0
    )


def test_bad_input_is_one_sentence() -> None:
    good = ("train", "counternet", "loans.csv", "--target", "approved", *SMALL)
    refused(run("train", "conternet", *good[2:]), "'conternet'", "did you mean 'counternet'")
    refused(run(*good, "--target", "aproved"), "no column 'aproved'", "did you mean 'approved'")
    refused(run(*good, "--set", "epoch=3"), "no setting 'epoch'", "did you mean 'epochs'")
    refused(run(*good, "--set", "seed=3"), "no setting 'seed'")
    refused(run(*good, "--set", "epochs=many"), "epochs=many", "an integer")
    refused(run(*good, "--set", "epochs"), "KEY=VALUE")
    refused(run(*good, "--set", "dropout=2"), "dropout must be")
    refused(run(*good, "--set", "encoder=0"), "encoder must be")
    refused(run("train", "rocoursenet", *good[2:], "--set", "epsilon=-1"), "epsilon must be")
    refused(
        run("train", "network", "loans.csv", "--target", "approved", "--set", "encoder=3"),
        "no setting 'encoder'",
    )
    refused(run(*good, "--fixed", "aeg"), "'aeg'", "did you mean 'age'")
    refused(run(*good, "--test", "1"), "--test must be")
    refused(run("train", "counternet", "no.csv", "--target", "approved"), "no file at 'no.csv'")
    refused(
        run("train", "counternet", "loans.txt", "--target", "approved"),
        "the extension must be one of",
    )
    Path("bad.parquet").write_bytes(b"PAR1 but no more")
    refused(
        run("train", "counternet", "bad.parquet", "--target", "approved"),
        "cannot read 'bad.parquet'",
    )
    write_table(loans(50).assign(approved="yes"), "one.csv")
    refused(run("train", "counternet", "one.csv", "--target", "approved"), "at least two")
    write_table(loans(1), "lone.csv")
    refused(run("train", "counternet", "lone.csv", "--target", "approved"), "at least two rows")
    assert run("train", "counternet", "loans.csv").code == 2
    assert not list(Path().glob("*.safetensors"))


def test_a_place_that_cannot_be_written_is_told_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = ("train", "counternet", "loans.csv", "--target", "approved", "--set", "epochs=1000000")
    refused(run(*good, "--out", "no/net.safetensors"), "there is no directory 'no'")
    refused(run(*good, "--out", "net.pt"), "must end in .safetensors")
    Path("d.safetensors").mkdir()
    refused(run(*good, "--out", "d.safetensors"), "it is a directory")
    # root may write everywhere
    monkeypatch.setattr(os, "access", lambda _, mode, **__: mode != os.W_OK)
    refused(run(*good), "no permission")


def test_a_damaged_recourse_network_is_refused_by_explain() -> None:
    assert run("train", "counternet", "loans.csv", "--target", "approved", *SMALL).code == 0
    whole = Path("counternet.safetensors").read_bytes()
    Path("cut.safetensors").write_bytes(whole[: len(whole) // 2])
    refused(
        run("explain", "people.csv", "--model", "cut.safetensors", "--target", "yes"),
        "cut.safetensors",
    )
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


# ---- counterfactual training


def watched(*argv: object) -> Ran:
    """The command in this process, with a terminal on both streams."""
    out = Stream(True)
    err = Stream(True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in argv])
    return Ran(
        code, out.text(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err.text()).replace("\r", "\n")
    )


# ---- from table to answers


def test_from_a_table_to_answers_that_keep_what_is_protected() -> None:
    files = ("--out", "m.safetensors", "--history", "history.csv", "--plot", "curves.svg")
    ran = run(*GOOD, *BRIEF, "--fixed", "age", "--fixed", "weight", *files)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert (report["kind"], report["model"], report["rows"], report["test_rows"]) == (
        "counterfactual",
        "m.safetensors",
        225,
        75,
    )
    assert (report["history"], report["plot"]) == ("history.csv", "curves.svg")
    history = read_table("history.csv")
    assert history["epoch"].tolist() == [*range(1, EPOCHS + 1)]
    for at, epoch in ((0, "first"), (-1, "last")):
        assert report[epoch] == {name: history[name].iloc[at] for name in report[epoch]}
    assert report["last"]["accuracy"] > max(0.8, report["first"]["accuracy"])
    assert report["last"]["validation"] == report["accuracy"]
    assert report["last"]["matured"] > 0.5
    assert "Divergence" in Path("curves.svg").read_text()

    model = hf.Model.load("m.safetensors")
    assert [f.change for f in model.schema.features] == ["fixed", "fixed", "free", "free"]
    for method in ("min-cost", "eccco"):
        words = (
            "weighed_people.csv",
            "--model",
            "m.safetensors",
            "--target",
            "yes",
            "--method",
            method,
        )
        explained = run("explain", *words, "--out", "a.parquet")
        assert explained.code == 0, explained.err
        cfs = hf.Counterfactuals.load("a.parquet")
        people = read_table("weighed_people.csv", model.schema)
        assert cfs.found.mean() > 0.5
        assert (cfs.after["income"] != people["income"]).any()
        for name in ("age", "weight"):
            assert cfs.after[name].to_numpy().tobytes() == people[name].to_numpy().tobytes()


def test_the_model_is_that_of_the_library_with_its_own_defaults() -> None:
    full = hf.CounterfactualObjective
    how = hf.CounterfactualSearch
    settings = (
        "--seed",
        "3",
        "--set",
        "generator__lr=0.3",
        "--energy",
        "2",
        "--l-reg",
        "0.3",
        "--burn-in",
        "0.4",
    )
    for words, more in (
        ((), {}),
        (("--generator", "eccco"), {}),
        (
            settings,
            {
                "search": how(hf.ECCCo(lr=0.3, energy=2.0, steps=30)),
                "objective": full(l_reg=0.3, burn_in=0.4),
                "seed": 3,
            },
        ),
        (("--generator", "generic", "--steps", "9"), {"search": how(hf.Descent.generic(steps=9))}),
        (
            ("--objective", "adversarial", "--l-adv", "1"),
            {"objective": full("adversarial", l_adv=1.0)},
        ),
        (("--tau", "0.6"), {"search": how(tau=0.6)}),
        (
            ("--n-counterfactuals", "20", "--l-div", "2"),
            {"search": how(n_counterfactuals=20), "objective": full(l_div=2.0)},
        ),
    ):
        assert run(*GOOD, "--fixed", "age,weight", *words, "--epochs", 2).code == 0
        X, y, schema = labelled(Path("weighed_loans.csv"), "approved", None, ["age", "weight"])
        learn, _ = held_out(len(X), 0.25, more.get("seed", 0))
        fit = hf.train_counterfactual(
            hf.Recipe(epochs=2), X.iloc[learn], y.iloc[learn], schema, **more
        )
        assert (
            hf.Model.load("counterfactual.safetensors").fingerprint() == fit.model.fingerprint()
        ), words


def test_help_tells_the_true_defaults() -> None:
    group: Any = typer.main.get_command(app)
    said = {
        o.name: o.help for o in group.commands["train"].params if o.help and "default: " in o.help
    }
    paper = GeneratorSettings.of(None)
    true = asdict(hf.CounterfactualObjective()) | asdict(hf.CounterfactualSearch())
    true |= {
        "generator": "eccco",
        "energy": paper.variant.energy,
        "tau": paper.variant.tau,
        "steps": paper.steps,
    }
    assert len(said) == 10
    for name, words in said.items():
        value = words.split("default: ")[1].removesuffix(".")
        assert value == (
            f"{true[name]:g}" if isinstance(true[name], int | float) else true[name]
        ), name


@pytest.mark.parametrize(
    "words",
    [
        ("--generator", "omniscient"),
        (
            "--generator",
            "revise",
            "--set",
            "generator__epochs=3",
            "--set",
            "generator__hidden=8",
            "--set",
            "latent=2",
        ),
        ("--objective", "draft", "--set", "refresh=batch"),
        ("--objective", "plain"),
        ("--test", "0", "--burn-in", "0.5"),
    ],
    ids=["omniscient", "revise", "draft", "plain", "no rows held out"],
)
def test_other_generators_and_objectives(words: tuple[str, ...]) -> None:
    ran = run(*GOOD, *BRIEF, *words, "--history", "h.json", "--plot", "h.html")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    history = json.loads(Path("h.json").read_text())
    assert len(history) == EPOCHS
    assert report["first"]["accuracy"] == history[0]["accuracy"]
    assert (report["last"]["matured"] is None) == ("plain" in words)
    assert (report["last"]["validation"] is None) == ("--test" in words)
    assert (report["first"]["matured"] is None) == ("plain" in words or "--burn-in" in words)
    assert Path("h.html").stat().st_size > 1000


def test_a_class_that_only_rows_held_out_have_is_wrong_and_no_error() -> None:
    table = weighed(120)
    _, held = held_out(len(table), 0.25, 0)
    table.loc[held[0], "approved"] = "perhaps"
    write_table(table, "weighed_loans.csv")
    ran = run(*GOOD, *BRIEF)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert report["accuracy"] == pytest.approx(report["last"]["validation"] * 29 / 30)


@pytest.mark.filterwarnings("default")
def test_the_recipe_is_that_of_the_network_and_says_so() -> None:
    ran = run(*GOOD, *BRIEF, "--recipe", "recipe.toml")
    assert ran.code == 0, ran.err
    assert "note: the recipe is that of the network" in ran.err
    assert hf.Recipe.load("recipe.toml") == hf.Recipe(
        hidden=(16,), epochs=EPOCHS, lr=0.02, batch_size=32
    )


# ---- what is told on the way


def test_a_terminal_sees_every_epoch_and_a_table_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ran = watched(*GOOD, *BRIEF, "--history", "h.csv", "--plot", "c.png")
    assert ran.code == 0, ran.err
    lines = rf"^full, seed 0: (\d)/{EPOCHS} (accuracy .*?) *$"
    history = read_table("h.csv")
    told = re.findall(lines, ran.err, flags=re.MULTILINE)
    assert [int(epoch) for epoch, _ in told] == history["epoch"].tolist()
    for at, (_, line) in enumerate(told):
        for name in ("accuracy", "validation", "matured", "divergence", "ridge", "adversarial"):
            (shown,) = re.findall(rf"\b{name} (\S+)", line)
            assert float(shown) == pytest.approx(history[name].iloc[at], rel=0.01, abs=0.001)
    lines = ran.out.splitlines()
    assert lines[0].startswith("counterfactual trained on 225 rows in ")
    assert lines[2].split() == ["epoch", "1", "epoch", str(EPOCHS)]
    table = {name: (a, b) for name, a, b in (line.split() for line in lines[3:9])}
    for name in ("accuracy", "matured", "ridge"):
        assert table[name] == (f"{history[name].iloc[0]:.3f}", f"{history[name].iloc[-1]:.3f}")
    assert lines[9:] == ["history: h.csv", "plot: c.png"]
    late = watched(*GOOD, *BRIEF, "--burn-in", "0.5", "--quiet")
    assert late.err == ""
    assert re.search(r"matured +- +\d", late.out)


def test_a_pipe_sees_no_progress() -> None:
    ran = run(*GOOD, *BRIEF)
    assert ran.err == (
        "next: holdfast explain people.csv --model counterfactual.safetensors --target yes --out "
        "recourse.parquet\n"
    )
    assert run(*GOOD, *BRIEF, "--quiet").err == ""
    real = program(*GOOD, *BRIEF)
    assert (real.returncode, real.stderr) == (0, ran.err)
    seen = json.loads(real.stdout)
    told = json.loads(ran.out)
    assert seen.pop("seconds") > 0
    assert told.pop("seconds") > 0
    assert seen == told


# ---- what is refused


def test_options_of_counterfactual_training_are_refused_for_other_kinds() -> None:
    group: Any = typer.main.get_command(app)
    own = [
        o for o in group.commands["train"].params if o.rich_help_panel == "Only for counterfactual"
    ]
    assert len(own) == 12
    for kind in ("network", "counternet", "rocoursenet"):
        for option in own:
            ran = run("train", kind, *GOOD[2:], option.opts[0], "1")
            refused(ran, f"{option.opts[0]} is for `holdfast train counterfactual`", repr(kind))
    refused(
        run("train", "network", *GOOD[2:], "--set", "l_div=1"), "network has no setting 'l_div'"
    )
    refused(
        run("train", "counternet", *GOOD[2:], "--hidden", "8"), "counternet has no setting 'hidden'"
    )
    assert run("train", "network", *GOOD[2:], "--hidden", "8", "--epochs", "1").code == 0


def test_bad_settings_are_one_sentence_before_the_work() -> None:
    for words, *said in (
        (("--objective", "ful"), "objective=ful", "full, draft, energy, adversarial, plain"),
        (("--generator", "ecco"), "unknown generator 'ecco'", "did you mean 'eccco'"),
        (
            ("--generator", "generic", "--energy", "2"),
            "generator 'generic' has no setting 'energy'",
        ),
        (
            ("--generator", "omniscient", "--steps", "3"),
            "generator 'omniscient' has no setting 'steps'",
        ),
        (("--generator", "omniscient", "--tau", "0.6"), "no use for tau"),
        (("--generator", "revise", "--fixed", "age"), "cannot keep those that may not change"),
        (("--objective", "plain", "--steps", "3"), "objective 'plain' has no use for steps"),
        (("--objective", "energy", "--l-adv", "1"), "objective 'energy' has no use for l_adv"),
        (("--set", "l_dif=1"), "no setting 'l_dif'", "did you mean 'l_div'"),
        (("--set", "attack=pgd"), "no setting 'attack'"),
        (("--set", "seeds=3"), "no setting 'seeds'"),
        (("--set", "generator__lr=fast"), "generator__lr=fast", "a number"),
        (("--epochs", "3", "--set", "epochs=4"), "epochs is given twice"),
        (
            ("--energy", "3", "--set", "generator__energy=4"),
            "'energy' of the generator is given twice",
        ),
        (("--epochs", "0"), "epochs must be"),
        (("--l-div", "-1"), "l_div must be"),
        (("--tau", "1"), "tau must lie between 0 and 1"),
        (("--burn-in", "2"), "burn_in must be a share"),
        (("--n-counterfactuals", "0"), "n_counterfactuals must be"),
        (("--steps", "0"), "steps of the generator must be"),
        (("--fixed", "aeg"), "'aeg'", "did you mean 'age'"),
        (("--history", "h.txt"), "cannot write 'h.txt'", ".csv"),
        (("--history", "no/h.csv"), "no directory 'no'"),
        (("--plot", "c.pdf"), "cannot write 'c.pdf'", ".svg"),
        (("--plot", "no/c.svg"), "no directory 'no'"),
    ):
        more = () if "--epochs" in words else ("--epochs", "200")
        refused(run(*GOOD, *more, *words), *said)
    assert run(*GOOD, "--l-div", "much").code == BAD_INPUT
    assert not list(Path().glob("*.safetensors"))


def test_a_missing_extra_is_told_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    refused(
        run(*GOOD, "--epochs", "200", "--plot", "c.svg"),
        "'vl_convert' is not installed",
        "holdfast[plot]",
    )
    assert not list(Path().glob("*.safetensors"))
