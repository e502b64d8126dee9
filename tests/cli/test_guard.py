"""No command writes over what it reads, in any spelling of the path."""

import os
from pathlib import Path
from typing import Any

import pytest
import typer

from holdfast.cli.guard import guarded
from holdfast.cli.main import app
from holdfast.cli.train.commands import app as train
from support.terminal import refused, run

# by command: what has to be given, which options are files to read, and which are files to write
FILES: dict[str, tuple[dict[str, str], list[str], list[str]]] = {
    "explain": (
        {"TABLE": "t.csv", "--model": "m.safetensors"},
        ["--schema", "--data"],
        ["--out", "--report"],
    ),
    "plans": (
        {"TABLE": "t.csv"},
        ["--model", "--data", "--recipe", "--schema"],
        ["--out", "--report", "--save"],
    ),
    "audit": (
        {"ANSWERS": "a.parquet"},
        ["--data", "--recipe", "--bank"],
        ["--out", "--plot", "--save-bank"],
    ),
    "tradeoff": ({"--data": "d.csv"}, ["--recipe", "--schema"], ["--out", "--plot"]),
    "train network": (
        {"TABLE": "t.csv", "--target": "outcome"},
        ["--schema"],
        ["--out", "--recipe"],
    ),
    "train images": ({"IMAGES": "i.npz"}, [], ["--out"]),
}
NO_FILES = ("--target",)


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for name in ("a.csv", "d.csv"):
        (Path("in") / name).write_text("age,outcome\n1,no\n2,yes\n")
    (tmp_path / "link.csv").symlink_to("in/a.csv")
    os.link("in/a.csv", "hard.csv")
    return tmp_path


def pairs() -> list[tuple[str, str, str]]:
    return [
        (command, output, read)
        for command, (needed, inputs, outputs) in FILES.items()
        for output in outputs
        for read in (*needed, *inputs)
        if read not in NO_FILES
    ]


@pytest.mark.parametrize(("command", "output", "read"), pairs())
def test_an_output_is_no_input(command: str, output: str, read: str, room: Path) -> None:
    before = (room / "in" / "a.csv").read_bytes()
    given = FILES[command][0] | {read: "in/a.csv"}
    words = [word for name, value in given.items() for word in (name, value) if not word.isupper()]
    for spelling in ("in/a.csv", "./in/../in/a.csv", room / "in/a.csv", "link.csv", "hard.csv"):
        ran = run(*command.split(), *words, output, spelling)
        refused(ran, f"{output} {str(Path(spelling))!r} would destroy {read} 'in/a.csv'")
        assert (room / "in" / "a.csv").read_bytes() == before


def test_nothing_lies_in_a_folder_that_is_saved_or_read() -> None:
    Path("saved").mkdir()
    Path("saved/audit.csv").write_text("a\n")
    plans = ("plans", "in/a.csv", "--save", "saved")
    refused(run(*plans, "--out", "saved/plans.csv"), "are one place; name another")
    refused(run(*plans, "--out", "other/../saved/p.csv"), "are one place")
    refused(run(*plans, "--report", "saved/sub/page.html"), "are one place")
    refused(run(*plans, "--data", "saved/audit.csv"), "would destroy --data 'saved/audit.csv'")
    refused(run("plans", "saved/audit.csv", "--save", "saved"), "would destroy TABLE")
    started = ("plans", "in/a.csv", "--from", "saved")
    refused(run(*started, "--out", "saved/recourse.json"), "would destroy --from 'saved'")
    assert "would destroy" not in run(*started, "--save", "saved").err


def test_two_outputs_are_two_files() -> None:
    audit = ("audit", "answers.parquet")
    refused(run(*audit, "--out", "o.json", "--plot", "./o.json"), "--out 'o.json' are one place")


def test_tables_of_a_list_are_inputs() -> None:
    audit = ("audit", "answers.parquet", "--table", "old=in/a.csv", "--out", "link.csv")
    refused(run(*audit), "--out 'link.csv' would destroy --table 'in/a.csv'")


def test_every_command_is_guarded() -> None:
    commands = [*app.registered_commands, *train.registered_commands]
    names = {typer.main.get_command_name(command.callback.__name__) for command in commands}
    assert {name.rpartition(" ")[2] for name in FILES} <= names
    for command in commands:
        callback: Any = command.callback
        assert guarded.__qualname__ in callback.__code__.co_qualname
