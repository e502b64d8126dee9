"""The command line: every command end to end, in process and as a program."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from torch import nn

import holdfast as hf
from holdfast.cli import main as cli
from holdfast.datasets import read_table, records, write_table
from holdfast.registry import METHODS
from support.terminal import Ran, program, run

FORMATS = ("csv", "json", "parquet")
QUICK = ("--set", "steps=10", "--set", "bisections=2")


# ---- running it


@contextlib.contextmanager
def inside(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


# ---- a small model and its people


def people(rows: int = 7) -> pd.DataFrame:
    """A whole number, a real one that looks whole in a text file, levels that look missing or like markup."""
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

    def explain(self, *more: object, table: str = "people.csv", terminal: bool = False) -> Ran:
        wanted = () if {"--target", "--any-other"} & set(more) else ("--target", "yes")
        model = () if "--model" in more else ("--model", self.at / "model.safetensors")
        return run("explain", self.at / table, *model, *wanted, *QUICK, *more, terminal=terminal)


def rich_people() -> nn.Sequential:
    """Says yes to income, less so to age and plan; within the range of the data everybody can get there."""
    layer = nn.Linear(5, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * 5, [0.2, 1.5, 0.8, -0.5, 0.3]]))
        layer.bias.zero_()
    return nn.Sequential(layer)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    at = tmp_path_factory.mktemp("cli")
    table, data = people(), people(60)
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


@dataclass(frozen=True)
class Demo:
    at: Path
    ran: Ran


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    at = tmp_path_factory.mktemp("demo")
    with inside(at):
        return Demo(at, run("demo", "--out", "my demo"))


def test_demo_leaves_its_files_and_says_what_it_did(demo: Demo) -> None:
    assert (demo.ran.code, demo.ran.err) == (0, "")
    left = {path.name for path in (demo.at / "my demo").iterdir()}
    assert left == {
        "report.html",
        "model.safetensors",
        "schema.toml",
        "applicants.csv",
        "recourse.parquet",
        "recourse-stable.parquet",
        "training.csv",
        "recipe.toml",
    }
    cfs = hf.Counterfactuals.load(demo.at / "my demo" / "recourse.parquet")
    assert len(cfs) > 30
    assert f"refuses {len(cfs)}; {int(cfs.found.sum())} of them get an answer" in demo.ran.out
    assert f"{cfs.cost('l0').mean():.1f} changes on average" in demo.ran.out
    assert int(re.search(r"right about (\d+)%", demo.ran.out)[1]) >= 70
    assert f"The first 10 of {len(cfs)} rows." in demo.ran.out


def test_demo_makes_answers_hold(demo: Demo) -> None:
    shares = [float(s) for s in re.findall(r"hold on ([\d.]+)% of 60 retrained models", demo.ran.out)]
    certified = [int(s) for s in re.findall(r"models; (\d+) of \d+ are certified", demo.ran.out)]
    assert len(shares) == len(certified) == 2
    assert shares[0] < 80 < 97 < shares[1]
    assert certified[0] < certified[1]
    held = hf.Counterfactuals.load(demo.at / "my demo" / "recourse-stable.parquet")
    assert len(held.run.guided_by) == 10


def test_demo_answers_are_accepted_by_the_saved_model(demo: Demo) -> None:
    cfs = hf.Counterfactuals.load(demo.at / "my demo" / "recourse.parquet")
    model = hf.Model.load(demo.at / "my demo" / "model.safetensors")
    refused = read_table(demo.at / "my demo" / "applicants.csv", model.schema)
    pd.testing.assert_frame_equal(refused, cfs.before)
    assert (model.predict(refused) == "denied").all()
    assert (model.predict(cfs.to_frame()[cfs.found]) == "approved").all()


def test_the_commands_that_demo_prints_work_as_they_are(demo: Demo) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings: Any = {"shell": True, "cwd": demo.at, "env": os.environ | {"PATH": path}, "text": True}
    explain, audit = demo.ran.out.rstrip("\n").splitlines()[-2:]
    done = subprocess.run(explain, capture_output=True, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    first, again = (hf.Counterfactuals.load(demo.at / p) for p in ("my demo/recourse.parquet", "recourse.parquet"))
    pd.testing.assert_frame_equal(again.after, first.after)
    assert again.run.model == first.run.model
    done = subprocess.run(audit, capture_output=True, **settings)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["summary"]["all"]["models"] == 100
    assert told["summary"]["all"]["survival"] > 0.97


@pytest.mark.filterwarnings("default:columns of")  # the training rows have an outcome, which the method leaves out
def test_demo_without_the_plot_extra_does_without_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    ran = run("demo", "--out", tmp_path / "new" / "demo", "--method", "nearest-neighbor")
    assert ran.code == 0
    assert "pip install 'holdfast[plot]'" in ran.err
    left = {path.name for path in (tmp_path / "new" / "demo").iterdir()}
    assert "report.html" not in left
    assert "report.html" not in ran.out
    again = run(*shlex.split(ran.out.rstrip("\n").splitlines()[-2])[1:-1], tmp_path / "again.parquet")
    assert again.code == 0
    paths = tmp_path / "new" / "demo" / "recourse.parquet", tmp_path / "again.parquet"
    first, second = (hf.Counterfactuals.load(path) for path in paths)
    pd.testing.assert_frame_equal(first.after, second.after)


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
    assert json.loads(ran.out) == records(answers.to_table())


def test_a_pipe_in_another_encoding_still_gets_json(files: Files) -> None:
    command = ("explain", files.at / "people.csv", "--model", files.at / "model.safetensors", "--any-other", *QUICK)
    done = program(*command, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "é, y" in {row["plan"] for row in json.loads(done.stdout)}


def test_a_reader_that_leaves_early_is_no_error(files: Files, tmp_path: Path) -> None:
    write_table(pd.concat([files.table] * 400), tmp_path / "many.json")
    command = [sys.executable, "-m", "holdfast", "explain", tmp_path / "many.json", "--any-other", "--method"]
    command += ["growing-spheres", "--set", "samples=5", "--set", "rings=1", "--model", files.at / "model.safetensors"]
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
    asked = pd.DataFrame({"age": [40], "income": [files.schema["income"].center], "plan": ["[red]"]})
    write_table(asked, tmp_path / "one.csv")
    ran = files.explain("--schema", tmp_path / "plan.toml", table=str(tmp_path / "one.csv"), terminal=True)
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


def test_control_characters_from_files_do_not_reach_the_terminal() -> None:
    assert cli.printable("a\x1b[31mb\r\nc") == "a\ufffd[31mb\ufffd\nc"


def test_strict_tells_of_rows_without_an_answer(files: Files, tmp_path: Path) -> None:
    frozen = files.schema.change(income={"change": "fixed"}, plan={"change": "fixed"})
    frozen.save(tmp_path / "frozen.toml")
    options = ("--schema", tmp_path / "frozen.toml", "--out", tmp_path / "out.json")
    assert files.explain(*options).code == 0
    assert files.explain(*options, "--strict").code == cli.UNANSWERED
    rows = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {row["status"] for row in rows} == {"not found", "already met"}
    assert all(row["reason"] for row in rows)


def test_strict_is_content_when_every_open_row_is_answered(files: Files, answers: hf.Counterfactuals) -> None:
    assert not (answers.status_codes == hf.Status.NOT_FOUND).any()
    assert files.explain("--strict").code == 0


def test_a_class_that_is_a_number_is_named_by_its_digits(files: Files, tmp_path: Path) -> None:
    hf.Model.of(rich_people(), files.schema, classes=[0, 1]).save(tmp_path / "numbers.safetensors")
    ran = files.explain("--model", tmp_path / "numbers.safetensors", "--target", "1", "--out", tmp_path / "out.parquet")
    assert ran.code == 0
    assert hf.Counterfactuals.load(tmp_path / "out.parquet").run.target == "1"
    ran = files.explain("--model", tmp_path / "numbers.safetensors", "--target", "7")
    assert ran.code == cli.BAD_INPUT
    assert "no class '7'" in ran.err


def test_a_text_class_comes_before_a_number_that_looks_like_it() -> None:
    assert cli.wanted((1, "1"), "1", False, None).label == "1"
    assert cli.wanted((1, "x"), "1", False, 0.7) == hf.Target(1, 0.7)
    assert cli.wanted((True, False), "True", False, None).label is True


def test_any_other_class(files: Files) -> None:
    rows = json.loads(files.explain("--any-other").out)
    assert "already met" not in {row["status"] for row in rows}


def test_the_call_reaches_the_library(files: Files, tmp_path: Path) -> None:
    options = ("--method", "descent", "--set", "norm=mse", "--set", "decay=yes", "--probability", "0.7", "--seed", "5")
    options += ("--set", "lr=0.5", "--set", "steps=50")
    ran = files.explain(*options, "--batch-size", "2", "--time-budget", "60", "--out", tmp_path / "out.parquet")
    assert ran.code == 0, ran.err
    cfs = hf.Counterfactuals.load(tmp_path / "out.parquet")
    assert cfs.run.settings == "Descent(norm='mse', lr=0.5, steps=50, decay=True, restarts=2)"
    assert (cfs.run.seed, cfs.run.target) == (5, "yes with probability 0.7")
    assert cfs.confidence[cfs.found].min() > 0.7


@pytest.mark.filterwarnings("default")
def test_a_method_that_looks_at_data_gets_it_without_the_outcome(files: Files) -> None:
    options = ["explain", files.at / "people.csv", "--model", files.at / "model.safetensors", "--any-other"]
    options += ["--method", "nearest-neighbor"]
    missing = run(*options)
    assert missing.code == cli.BAD_INPUT
    assert "--data" in missing.err
    ran = run(*options, "--data", files.at / "data.csv")
    assert ran.code == 0
    assert ran.err.startswith("note: columns of ")
    assert "left out: ['outcome']" in ran.err


def test_warnings_become_notes_on_stderr(files: Files) -> None:
    command = ("explain", files.at / "people.csv", "--model", files.at / "model.safetensors", "--any-other", *QUICK)
    done = program(*command, "--data", files.at / "data.csv")
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == "note: method 'min-cost' looks at no data, so --data is not used"


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
    assert ran.code == cli.BAD_INPUT
    assert "pip install 'holdfast[plot]'" in ran.err
    assert (tmp_path / "out.csv").exists()  # the answers are not lost


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_without_rows_gives_answers_without_rows(files: Files, tmp_path: Path, kind: str) -> None:
    write_table(files.table.iloc[:0], tmp_path / f"none.{kind}")
    ran = files.explain("--strict", table=str(tmp_path / f"none.{kind}"))
    assert (ran.code, json.loads(ran.out)) == (0, [])
    for wanted in FORMATS:
        assert files.explain("--out", tmp_path / f"out.{wanted}", table=str(tmp_path / f"none.{kind}")).code == 0
    assert len(hf.Counterfactuals.load(tmp_path / "out.parquet")) == 0
    assert files.explain(table=str(tmp_path / f"none.{kind}"), terminal=True).code == 0
    assert files.explain("--report", tmp_path / "page.html", table=str(tmp_path / f"none.{kind}")).code == 0


def test_a_pickled_estimator_works_when_trusted(files: Files, tmp_path: Path) -> None:
    import joblib
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    data = read_table(files.at / "data.csv", files.schema).drop(columns="outcome")
    encode = make_column_transformer(
        (OneHotEncoder(), ["plan"]), (StandardScaler(), make_column_selector(dtype_include="number"))
    )
    judge = make_pipeline(encode, LogisticRegression()).fit(data, np.where(data["income"] > 2500, "yes", "no"))
    joblib.dump(judge, tmp_path / "judge.joblib")
    command = ["explain", files.at / "people.csv", "--model", tmp_path / "judge.joblib", "--target", "yes"]
    command += ["--schema", files.at / "schema.toml", "--method", "growing-spheres"]
    assert run(*command).code == cli.BAD_INPUT
    trusted = run(*command, "--trust-model-code")
    assert trusted.code == 0, trusted.err
    rows = read_table(files.at / "people.csv", files.schema)
    after = pd.DataFrame(json.loads(trusted.out))[files.schema.names]
    assert (judge.predict(after) == "yes").all()
    assert (judge.predict(rows) == "no").any()


# ---- settings


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", int, 3),
        ("-1e3", float, -1000.0),
        ("none", float | None, None),
        ("None", float | None, None),
        ("2", float | None, 2.0),
        ("none", str | None, None),
        ("none", str, "none"),
        ("TRUE", bool, True),
        ("no", bool, False),
        ("0", bool, False),
        ("2", Literal[1, 2, "mse"], 2),
        ("mse", Literal[1, 2, "mse"], "mse"),
        ("", str, ""),
    ],
)
def test_settings_are_read_as_their_type_says(text: str, kind: Any, value: object) -> None:
    assert cli.parsed(text, kind) == value
    assert type(cli.parsed(text, kind)) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("x", int, "a whole number"),
        ("1.5", int, "a whole number"),
        ("", float, "a number"),
        ("maybe", bool, "true or false"),
        ("3", Literal[1, 2], "one of 1, 2"),
        ("x", float | None, "none or a number"),
        ("x", dict, "a value that only Python code can give"),
    ],
)
def test_settings_of_another_type_are_refused(text: str, kind: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        cli.parsed(text, kind)


@pytest.mark.parametrize("name", METHODS)
def test_every_default_can_be_written_as_a_setting(name: str) -> None:
    kind = hf.list_methods()[name]
    defaults = cli.describe_method(name, kind)["settings"]
    written = cli.configured(name, [f"{key}={value}" for key, value in defaults.items()])
    assert written.get_params() == kind().get_params()


# ---- methods, version, help


def test_methods_lists_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ran = run("methods")
    assert ran.code == 0
    for name, (_, cls) in METHODS.items():
        assert name in ran.out
        assert cls in ran.out
        assert hf.list_methods()[name].title in ran.out
    assert "steps=60" in ran.out


def test_methods_as_json() -> None:
    about = [m for m in json.loads(run("methods", "--json").out) if m["for"] == "tables"]
    assert [(m["name"], m["class"]) for m in about] == [(name, cls) for name, (_, cls) in METHODS.items()]
    for m in about:
        kind = hf.list_methods()[m["name"]]
        assert (m["needs_gradients"], m["needs_data"], m["paper"]) == (kind.needs_grad, kind.needs_data, kind.paper)
        assert m["settings"].keys() == kind().get_params(deep=False).keys()


def test_version() -> None:
    assert run("--version") == Ran(0, f"holdfast {hf.__version__}\n", "")


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    code = "import sys; from holdfast.cli import main; c = main(['--help']); "
    code += "sys.exit(c or any(m in sys.modules for m in ('torch', 'pandas', 'numpy', 'sklearn')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    for code in (0, cli.BAD_INPUT, cli.UNANSWERED, cli.INTERNAL, cli.INTERRUPTED):
        assert re.search(rf"\b{code}\b", done.stdout)


def test_no_arguments_show_the_help() -> None:
    done = program()
    assert done.returncode in (0, cli.BAD_INPUT)
    assert "explain" in done.stdout + done.stderr


# ---- exit codes


def test_interrupted(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf.MinCost, "search", raising(KeyboardInterrupt))
    ran = files.explain()
    assert (ran.code, ran.out, ran.err) == (cli.INTERRUPTED, "", "interrupted\n")


def test_an_error_inside_is_one_sentence_unless_asked(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf.MinCost, "search", raising(ZeroDivisionError("by\nnothing")))
    ran = files.explain()
    assert ran.code == cli.INTERNAL
    assert ran.err.count("\n") == 1
    assert "unexpected ZeroDivisionError: by nothing" in ran.err
    assert "HOLDFAST_DEBUG=1" in ran.err
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    ran = files.explain()
    assert ran.code == cli.INTERNAL
    assert "Traceback" in ran.err


def raising(error: Any) -> Any:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_usage_errors_exit_with_two(files: Files) -> None:
    for argv in (["explain"], ["nonsense"], ["explain", "x.csv", "--model", "m", "--seed", "x"], ["demo", "--bogus"]):
        assert run(*argv).code == cli.BAD_INPUT
    assert files.explain("--target", "yes", "--any-other").code == cli.BAD_INPUT
    ran = run("explain", files.at / "people.csv", "--model", files.at / "model.safetensors")
    assert ran.code == cli.BAD_INPUT
    assert "--target no or --target yes, or --any-other" in ran.err


# ---- documentation


def test_docs_name_every_command_option_and_exit_code() -> None:
    text = (Path(__file__).parents[2] / "docs/guide/command-line.md").read_text(encoding="utf-8")
    group: Any = typer.main.get_command(cli.app)
    for name, command in group.commands.items():
        assert f"holdfast {name}" in text
        section = text.split(f"\n## holdfast {name}\n")[1].split("\n## ")[0]
        for option in command.params:
            written = [o for o in option.opts if o.startswith("--")] or [option.name.upper()]
            assert f"`{written[0]}" in section, (
                f"{written[0]} of `holdfast {name}` is not in docs/guide/command-line.md"
            )
    assert "--version" in text
    for code in (0, cli.BAD_INPUT, cli.UNANSWERED, cli.INTERNAL, cli.INTERRUPTED):
        assert f"| {code} |" in text
    for name in METHODS:
        assert f"`{name}`" in text
