"""`holdfast explain` end to end, in process and as a program."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.cli.options import BAD_INPUT, UNANSWERED
from holdfast.datasets import read_table, records, write_table
from support.header_reads import header_reads
from support.terminal import Ran, program, run, set_to

FORMATS = ("csv", "json", "parquet")
QUICK = set_to(steps=10, bisections=2)


# ---- running it


# ---- a small model and its people


def people(rows: int = 7) -> pd.DataFrame:
    """A whole number, a real one that looks whole in a text file, levels that look missing or like
    markup."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, rows),
            "income": rng.integers(10, 50, rows) * 100.0,
            "plan": rng.choice(["NA", "[red]", "é, y"], rows),
        }
    )


@dataclass(frozen=True)
class Files:
    at: Path
    table: pd.DataFrame
    schema: hf.Schema
    model: hf.Model

    @property
    def any_other(self) -> tuple[object, ...]:
        """The command, for any class but the present one."""
        return (
            "explain",
            self.at / "people.csv",
            "--model",
            self.at / "model.safetensors",
            "--any-other",
        )

    def explain(self, *more: object, table: str = "people.csv", terminal: bool = False) -> Ran:
        wanted = () if {"--target", "--any-other"} & set(more) else ("--target", "yes")
        model = () if "--model" in more else ("--model", self.at / "model.safetensors")
        quick = () if "--method" in more else QUICK
        return run("explain", self.at / table, *model, *wanted, *quick, *more, terminal=terminal)


def rich_people() -> nn.Sequential:
    """Says yes to income, less so to age and plan; within the range of the data everybody can get
    there."""
    layer = nn.Linear(5, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * 5, [0.2, 1.5, 0.8, -0.5, 0.3]]))
        layer.bias.zero_()
    return nn.Sequential(layer)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    at = tmp_path_factory.mktemp("cli")
    table = people()
    data = people(60)
    schema = hf.Schema.infer(data, fixed=["age"])
    model = hf.Model.of(rich_people(), schema, classes=["no", "yes"])
    model.save(at / "model.safetensors")
    schema.save(at / "schema.toml")
    for kind in FORMATS:
        write_table(table, at / f"people.{kind}")
        write_table(data.assign(outcome="no"), at / f"data.{kind}")
    return Files(at, table, schema, model)


@pytest.fixture(scope="session")
def answers(files: Files) -> hf.Counterfactuals:
    return hf.MinCost(steps=10, bisections=2).explain(files.model, files.table, "yes")


def test_the_small_problem_has_rows_of_both_kinds(answers: hf.Counterfactuals) -> None:
    assert set(answers.status_codes.tolist()) >= {hf.Status.FOUND, hf.Status.ALREADY_MET}


# ---- demo


# ---- explain


@pytest.mark.parametrize("given", FORMATS)
@pytest.mark.parametrize("wanted", FORMATS)
def test_every_format_in_and_out_gives_the_answers_of_the_library(
    files: Files, answers: hf.Counterfactuals, tmp_path: Path, given: str, wanted: str
) -> None:
    out = tmp_path / f"out.{wanted}"
    ran = files.explain("--out", out, table=f"people.{given}")
    assert (ran.code, ran.out) == (0, "")
    assert answers.summary().split(" (")[0] in ran.err
    if wanted == "parquet":
        cfs = hf.Counterfactuals.load(out)
        pd.testing.assert_frame_equal(cfs.after, answers.after)
        assert (cfs.run.model, cfs.run.seed) == (answers.run.model, 0)
    else:
        table = read_table(out, files.schema)
        pd.testing.assert_frame_equal(table[files.schema.names], answers.after)  # to the last digit
        assert table["status"].tolist() == answers.status["status"].tolist()
        assert table["sentence"].tolist() == answers.sentences().tolist()


def test_piped_output_is_the_same_table_as_json(files: Files, answers: hf.Counterfactuals) -> None:
    ran = files.explain()
    assert ran.code == 0
    assert json.loads(ran.out) == records(answers.table())


def test_a_pipe_in_another_encoding_still_gets_json(files: Files) -> None:
    done = program(*files.any_other, *QUICK, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "é, y" in {row["plan"] for row in json.loads(done.stdout)}


def test_a_reader_that_leaves_early_is_no_error(files: Files, tmp_path: Path) -> None:
    write_table(pd.concat([files.table] * 400), tmp_path / "many.json")
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "explain",
        tmp_path / "many.json",
        "--any-other",
        "--method",
    ]
    command += [
        "growing-spheres",
        *set_to(samples=5, rings=1),
        "--model",
        files.at / "model.safetensors",
    ]
    # Without its buffer Python takes no notice of a reader that leaves.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=buffered) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        error = process.stderr.read()
    assert process.returncode == 0
    assert "rows:" in error
    assert "Traceback" not in error
    assert "BrokenPipe" not in error


def test_a_terminal_gets_a_table_of_changes(
    files: Files, answers: hf.Counterfactuals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ran = files.explain(terminal=True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert ran.code == 0
    for _, change in answers.changes().iterrows():
        assert re.search(rf"{change['feature']}: {re.escape(shown(change['before']))} → ", plain)
    for sentence in answers.sentences():
        assert sentence in plain


def shown(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def test_levels_that_look_like_markup_are_shown_as_they_are(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    files.schema.change(income={"change": "fixed"}).save(tmp_path / "plan.toml")
    asked = pd.DataFrame(
        {"age": [40], "income": [files.schema["income"].center], "plan": ["[red]"]}
    )
    write_table(asked, tmp_path / "one.csv")
    ran = files.explain(
        "--schema", tmp_path / "plan.toml", table=str(tmp_path / "one.csv"), terminal=True
    )
    assert "plan: [red] → " in re.sub(r"\x1b\[[0-9;]*m", "", ran.out)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_whole_numbers_in_a_file_do_not_round_answers_in_a_real_column(
    files: Files, answers: hf.Counterfactuals, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"whole.{kind}"
    write_table(files.table.astype({"income": int}), path)
    after = pd.DataFrame(json.loads(files.explain(table=str(path)).out))["income"]
    assert after.tolist() == answers.after["income"].tolist()
    assert (after % 1 != 0).any()


def test_a_long_table_is_cut_on_the_terminal_only(files: Files, tmp_path: Path) -> None:
    write_table(pd.concat([files.table] * 4), tmp_path / "many.csv")
    ran = files.explain(table=str(tmp_path / "many.csv"), terminal=True)
    assert "The first 20 of 28 rows." in ran.out
    assert len(json.loads(files.explain(table=str(tmp_path / "many.csv")).out)) == 28


def test_strict_tells_of_rows_without_an_answer(files: Files, tmp_path: Path) -> None:
    frozen = files.schema.change(income={"change": "fixed"}, plan={"change": "fixed"})
    frozen.save(tmp_path / "frozen.toml")
    options = ("--schema", tmp_path / "frozen.toml", "--out", tmp_path / "out.json")
    assert files.explain(*options).code == 0
    assert files.explain(*options, "--strict").code == UNANSWERED
    rows = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {row["status"] for row in rows} == {"not found", "already met"}
    assert all(row["reason"] for row in rows)


def test_strict_is_content_when_every_open_row_is_answered(
    files: Files, answers: hf.Counterfactuals
) -> None:
    assert not (answers.status_codes == hf.Status.NOT_FOUND).any()
    assert files.explain("--strict").code == 0


def test_a_class_that_is_a_number_is_named_by_its_digits(files: Files, tmp_path: Path) -> None:
    hf.Model.of(rich_people(), files.schema, classes=[0, 1]).save(tmp_path / "numbers.safetensors")
    ran = files.explain(
        "--model",
        tmp_path / "numbers.safetensors",
        "--target",
        "1",
        "--out",
        tmp_path / "out.parquet",
    )
    assert ran.code == 0
    assert hf.Counterfactuals.load(tmp_path / "out.parquet").run.target == "1"
    ran = files.explain("--model", tmp_path / "numbers.safetensors", "--target", "7")
    assert ran.code == BAD_INPUT
    assert "no class '7'" in ran.err


def test_any_other_class(files: Files) -> None:
    rows = json.loads(files.explain("--any-other").out)
    assert "already met" not in {row["status"] for row in rows}


def test_the_call_reaches_the_library(files: Files, tmp_path: Path) -> None:
    settings = set_to(norm="mse", decay="yes", lr=0.5, steps=50, restarts=2)
    options = ("--method", "descent", *settings, "--probability", "0.7", "--seed", "5")
    ran = files.explain(
        *options, "--batch-size", "2", "--time-budget", "60", "--out", tmp_path / "out.parquet"
    )
    assert ran.code == 0, ran.err
    cfs = hf.Counterfactuals.load(tmp_path / "out.parquet")
    assert cfs.run.settings == "Descent(norm='mse', lr=0.5, steps=50, decay=True, restarts=2)"
    assert (cfs.run.seed, cfs.run.target) == (5, "yes with probability 0.7")
    assert cfs.probability[cfs.found].min() > 0.7


@pytest.mark.filterwarnings("default")
def test_a_method_that_looks_at_data_gets_it_without_the_outcome(files: Files) -> None:
    options = (*files.any_other, "--method", "nearest-neighbor")
    missing = run(*options)
    assert missing.code == BAD_INPUT
    assert "--data" in missing.err
    ran = run(*options, "--data", files.at / "data.csv")
    assert ran.code == 0
    assert ran.err.startswith("note: columns of ")
    assert "left out: ['outcome']" in ran.err


def test_warnings_become_notes_on_stderr(files: Files) -> None:
    done = program(*files.any_other, *QUICK, "--data", files.at / "data.csv")
    assert done.returncode == 0
    assert (
        done.stderr.splitlines()[0]
        == "note: method 'min-cost' does not use data, so --data is not used"
    )


def test_quiet_says_nothing(files: Files) -> None:
    ran = files.explain("--quiet", "--data", files.at / "data.csv")
    assert (ran.code, ran.err) == (0, "")


def test_report_is_written_beside_the_answers(files: Files, tmp_path: Path) -> None:
    ran = files.explain("--report", tmp_path / "page.html", "--out", tmp_path / "out.csv")
    assert ran.code == 0
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_report_without_the_plot_extra_says_how_to_get_it(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    ran = files.explain("--report", tmp_path / "page.html", "--out", tmp_path / "out.csv")
    assert ran.code == BAD_INPUT
    assert "pip install 'holdfast[plot]'" in ran.err
    assert (tmp_path / "out.csv").exists()  # the answers are not lost


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_without_rows_gives_answers_without_rows(
    files: Files, tmp_path: Path, kind: str
) -> None:
    write_table(files.table.iloc[:0], tmp_path / f"none.{kind}")
    ran = files.explain("--strict", table=str(tmp_path / f"none.{kind}"))
    assert (ran.code, json.loads(ran.out)) == (0, [])
    for wanted in FORMATS:
        assert (
            files.explain(
                "--out", tmp_path / f"out.{wanted}", table=str(tmp_path / f"none.{kind}")
            ).code
            == 0
        )
    assert len(hf.Counterfactuals.load(tmp_path / "out.parquet")) == 0
    assert files.explain(table=str(tmp_path / f"none.{kind}"), terminal=True).code == 0
    assert (
        files.explain("--report", tmp_path / "page.html", table=str(tmp_path / f"none.{kind}")).code
        == 0
    )


def test_a_pickled_estimator_works_when_trusted(files: Files, tmp_path: Path) -> None:
    import joblib
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    data = read_table(files.at / "data.csv", files.schema).drop(columns="outcome")
    encode = make_column_transformer(
        (OneHotEncoder(), ["plan"]),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )
    judge = make_pipeline(encode, LogisticRegression()).fit(
        data, np.where(data["income"] > 2500, "yes", "no")
    )
    joblib.dump(judge, tmp_path / "judge.joblib")
    command = [
        "explain",
        files.at / "people.csv",
        "--model",
        tmp_path / "judge.joblib",
        "--target",
        "yes",
    ]
    command += ["--schema", files.at / "schema.toml", "--method", "growing-spheres"]
    assert run(*command).code == BAD_INPUT
    trusted = run(*command, "--trust-model-code")
    assert trusted.code == 0, trusted.err
    rows = read_table(files.at / "people.csv", files.schema)
    after = pd.DataFrame(json.loads(trusted.out))[files.schema.names]
    assert (judge.predict(after) == "yes").all()
    assert (judge.predict(rows) == "no").any()


# ---- settings


# ---- methods, version, help


# ---- exit codes


# ---- documentation


# ---- what is read


@pytest.mark.parametrize("recourse", [False, True])
def test_the_header_of_the_models_file_is_read_once(
    recourse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame({"a": np.linspace(0, 1, 40), "b": np.linspace(1, 0, 40) ** 2})
    write_table(table.head(3), tmp_path / "people.csv")
    file = tmp_path / "m.safetensors"
    y = np.where(table["a"] > 0.5, "yes", "no")
    net = hf.CounterNet(encoder=(4,), predictor=(4,), generator=(4,), epochs=1).fit(table, y)
    if recourse:
        net.save(file)
    else:
        net.model_.save(file)
    reads = header_reads(monkeypatch)
    words = ("explain", tmp_path / "people.csv", "--model", file, "--target", "yes")
    ran = run(*words)
    assert ran.code == 0, ran.err
    assert ("recourse network" in ran.err) == recourse
    assert reads == [file]


def test_a_table_imports_nothing_about_images(files: Files) -> None:
    words = ["explain", str(files.at / "people.csv"), "--model"]
    words += [str(files.at / "model.safetensors"), "--target", "yes", *QUICK]
    code = (
        "import sys; from holdfast.cli.main import main; "
        f"code = main({words!r}); "
        "known = [name for name in sys.modules if name.startswith('holdfast.images')]; "
        "sys.exit(code or ' '.join(known) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
