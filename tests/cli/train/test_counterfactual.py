"""`holdfast train counterfactual`: a network that learns from its own counterfactuals."""

import contextlib
import json
import re
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
from holdfast.cli.train._run import labelled
from holdfast.datasets import held_out, read_table, write_table
from holdfast.training.counterfactual.generators import GeneratorSettings
from support.loans import write_loans
from support.terminal import Ran, Stream, program, refused, run, set_to

EPOCHS = 5
GOOD = ("train", "counterfactual", "weighed_loans.csv", "--target", "approved")
BRIEF = ("--epochs", EPOCHS, "--hidden", "16", *set_to(lr=0.02, batch_size=32))


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
    write_loans(weighed, 300, "weighed_")


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
    command = group.commands["train"].commands["counterfactual"]
    said = {
        o.name: o.help
        for o in command.params
        if o.help and "default: " in o.help and o.name not in ("out", "schema")
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
            *set_to(generator__epochs=3, generator__hidden=8, latent=2),
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


def test_other_commands_do_not_know_its_settings() -> None:
    network = ("train", "network", *GOOD[2:])
    refused(run(*network, "--set", "l_div=1"), "network has no setting 'l_div'")
    recourse = ("train", "recourse", *GOOD[2:])
    refused(run(*recourse, "--set", "hidden=8"), "rocoursenet has no setting 'hidden'")
    assert run(*network, "--tau", "0.6").code == BAD_INPUT
    assert run(*network, "--hidden", "8", "--epochs", "1").code == 0


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
