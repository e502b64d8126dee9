"""`holdfast demo` from the outside."""

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import skops.io

import holdfast as hf
from holdfast.cli.demo import keep, pipeline
from holdfast.datasets import read_table
from holdfast.models.formats.skops.reader import TRUSTED
from support.demos import small_demo
from support.terminal import Ran, refused, run


@dataclass(frozen=True)
class Demo:
    at: Path
    ran: Ran

    @property
    def files(self) -> set[str]:
        """The names of what it left."""
        return {path.name for path in (self.at / "my demo").iterdir()}


# ---- a pipeline of trees


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    at = tmp_path_factory.mktemp("trees")
    with contextlib.chdir(at), small_demo():
        return Demo(at, run("demo", "--out", "my demo"))


def test_demo_leaves_its_files_and_says_what_it_did(trees: Demo) -> None:
    assert trees.ran.code == 0, trees.ran.err
    assert trees.ran.err.startswith("retraining 130 models (20 guide, 50 calibration, 60 audit)")
    assert trees.files == {
        "report.html",
        "model.skops",
        "schema.toml",
        "applicants.csv",
        "plans.parquet",
        "training.csv",
    }
    plans = hf.Plans.load(trees.at / "my demo" / "plans.parquet")
    told = trees.ran.out
    assert plans.summary() in told
    assert f"The first 8 of {len(plans)}." in told
    assert int(re.search(r"right about (\d+)% of 250 test applicants", told)[1]) >= 70
    assert f"and refuses {len(plans)}." in told
    assert "Plans that hold" in (trees.at / "my demo" / "report.html").read_text(encoding="utf-8")


def test_demo_compares_plans_with_the_smallest_changes(trees: Demo) -> None:
    plans = hf.Plans.load(trees.at / "my demo" / "plans.parquet")
    smallest, held = (float(s) for s in re.findall(r"hold on ([\d.]+)% of", trees.ran.out))
    certified = [int(s) for s in re.findall(r"; (\d+) of \d+ are certified", trees.ran.out)]
    assert smallest < 70 < 80 < held
    assert held == pytest.approx(100 * plans.survival[plans.cfs.answered].mean(), abs=0.05)
    assert certified[0] < certified[1] == int(plans.certified.sum())


def test_the_plans_are_accepted_by_the_saved_pipeline(trees: Demo) -> None:
    plans = hf.Plans.load(trees.at / "my demo" / "plans.parquet")
    saved = skops.io.load(trees.at / "my demo" / "model.skops", trusted=TRUSTED)
    refused = read_table(trees.at / "my demo" / "applicants.csv", plans.cfs.schema)
    pd.testing.assert_frame_equal(refused, plans.cfs.before)
    assert (saved.predict(refused) == "denied").all()
    assert plans.found.any()
    assert (saved.predict(plans.to_frame()[plans.cfs.answered]) == "approved").all()


def test_the_command_that_demo_prints_works_as_it_is(
    trees: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trees.at)
    command = shlex.split(trees.ran.out.rstrip("\n").splitlines()[-1])
    ran = run(*command[1:])
    assert (ran.code, ran.out) == (0, ""), ran.err
    plans = hf.Plans.load("plans.parquet")
    assert plans.hold == 0.8
    first = hf.Plans.load(Path("my demo") / "plans.parquet")
    pd.testing.assert_frame_equal(plans.cfs.before, first.cfs.before)


def test_without_skops_the_pipeline_is_not_kept_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not keep(pipeline(), tmp_path / "model.skops")
    assert not list(tmp_path.iterdir())
    assert (
        "no model.skops: to keep the pipeline, pip install 'holdfast[files]'"
        in capsys.readouterr().err
    )


def test_options_that_would_do_nothing_are_refused() -> None:
    refused(run("demo", "--method", "roar"), "--method is for --network and --images")
    refused(run("demo", "--network", "--images"), "two demos")


# ---- a network


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    at = tmp_path_factory.mktemp("demo")
    with contextlib.chdir(at):
        return Demo(at, run("demo", "--network", "--out", "my demo"))


def test_the_network_leaves_its_files_and_says_what_it_did(demo: Demo) -> None:
    assert (demo.ran.code, demo.ran.err) == (0, "")
    assert demo.files == {
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


def test_the_network_makes_answers_hold(demo: Demo) -> None:
    shares = [
        float(s) for s in re.findall(r"hold on ([\d.]+)% of 60 retrained models", demo.ran.out)
    ]
    certified = [int(s) for s in re.findall(r"models; (\d+) of \d+ are certified", demo.ran.out)]
    assert len(shares) == len(certified) == 2
    assert shares[0] < 80 < 97 < shares[1]
    assert certified[0] < certified[1]
    held = hf.Counterfactuals.load(demo.at / "my demo" / "recourse-stable.parquet")
    assert len(held.run.guided_by) == 10


def test_answers_are_accepted_by_the_saved_network(demo: Demo) -> None:
    cfs = hf.Counterfactuals.load(demo.at / "my demo" / "recourse.parquet")
    model = hf.Model.load(demo.at / "my demo" / "model.safetensors")
    refused = read_table(demo.at / "my demo" / "applicants.csv", model.schema)
    pd.testing.assert_frame_equal(refused, cfs.before)
    assert (model.predict(refused) == "denied").all()
    assert (model.predict(cfs.to_frame()[cfs.found]) == "approved").all()


def test_the_commands_that_the_network_prints_work_as_they_are(demo: Demo) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings: Any = {
        "shell": True,
        "cwd": demo.at,
        "env": os.environ | {"PATH": path},
        "text": True,
    }
    explain, audit = demo.ran.out.rstrip("\n").splitlines()[-2:]
    done = subprocess.run(explain, capture_output=True, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    first = hf.Counterfactuals.load(demo.at / "my demo/recourse.parquet")
    again = hf.Counterfactuals.load(demo.at / "recourse.parquet")
    pd.testing.assert_frame_equal(again.after, first.after)
    assert again.run.model == first.run.model
    done = subprocess.run(audit, capture_output=True, **settings)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["by family"]["all"]["models"] == 100
    assert told["by family"]["all"]["survival"] > 0.97


# the training rows have an outcome, which the method leaves out
@pytest.mark.filterwarnings("default:columns of")
def test_the_network_without_the_plot_extra_does_without_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    ran = run(
        "demo", "--network", "--out", tmp_path / "new" / "demo", "--method", "nearest-neighbor"
    )
    assert ran.code == 0
    assert "pip install 'holdfast[plot]'" in ran.err
    left = {path.name for path in (tmp_path / "new" / "demo").iterdir()}
    assert "report.html" not in left
    assert "report.html" not in ran.out
    again = run(
        *shlex.split(ran.out.rstrip("\n").splitlines()[-2])[1:-1], tmp_path / "again.parquet"
    )
    assert again.code == 0
    paths = tmp_path / "new" / "demo" / "recourse.parquet", tmp_path / "again.parquet"
    first, second = (hf.Counterfactuals.load(path) for path in paths)
    pd.testing.assert_frame_equal(first.after, second.after)
