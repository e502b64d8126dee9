"""The runner: what it checks before it starts, what it writes, and that the committed pages show
the results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import PAPERS
from experiments.cell import Store
from experiments.experiment import Experiment, Figures, Results, Run
from experiments.pages import page_text, write_paper
from experiments.paper import load_paper
from experiments.run import reproduce
from experiments.runner import differences
from holdfast.errors import SettingError
from support.committed import RESULTS


def measure(run: Run[int, list[int]]) -> Figures:
    cell = run.parts.arrays("sum", lambda: {"sum": np.array(sum(run.task[: run.rows]))}, run.rows)
    return {"sum": int(cell["sum"]), "models": run.models * run.setting}


def page(results: Results) -> list[str]:
    return [*(f"{r['dataset']}: {r['sum']}" for r in results), ""]


def tiny() -> Experiment[int, list[int]]:
    """Sums of ten numbers, with the notes of a paper."""
    return Experiment(
        name="black2022",
        title="Sums",
        settings={"ones": 1, "twos": 2, "rest": 3},
        models=4,
        quick="rest",
        quick_models=1,
        prepare=lambda dataset, seed: [len(dataset) + seed] * 10,
        measure=measure,
        page=page,
        pictures=lambda results: {
            f"{r['dataset']}.png": lambda r=r: f"{r['sum']}".encode() for r in results
        },
        full=("ones", "twos"),
    )


def test_a_run_leaves_figures_a_page_and_pictures(tmp_path: Path) -> None:
    reported = list[str]()
    where: dict[str, Any] = {
        "out": tmp_path / "out",
        "work": tmp_path / "work",
        "report": reported.append,
    }
    results = reproduce(tiny(), **where, seed=2)
    assert [r["dataset"] for r in results] == ["ones", "twos"]  # of a full run
    assert reported == ["ones/sum", "twos/sum"]
    directory = tmp_path / "out/black2022"
    for r in results:
        assert json.loads((directory / f"{r['dataset']}.json").read_text()) == r
        assert (r["paper"], r["sum"], r["seed"]) == ("black2022", 60, 2)
        assert set(r["seconds"]) == {"sum", "this call"}
    assert [r["models"] for r in results] == [4, 8]
    assert (directory / "ones.png").read_bytes() == b"60"
    (some,) = reproduce(tiny(), ["rest"], **where, seed=2, models=1, rows=3)
    assert (some["sum"], some["models"]) == (18, 3)
    lines = (directory / "README.md").read_text().splitlines()
    assert lines[:6] == ["# Sums", "", "ones: 60", "twos: 60", "rest: 18", ""]
    assert lines[6].startswith("## ")  # the notes
    assert lines[-5:] == [
        "## Pictures",
        "",
        *(f"![{name}]({name}.png)" for name in ("ones", "twos", "rest")),
    ]
    assert page_text("black2022", "Sums", [], {}).startswith("# Sums\n")
    before = list(reported)
    assert reproduce(tiny(), ["ones"], **where, seed=2)[0]["sum"] == 60
    assert reported == before  # everything is there


def test_datasets_are_checked_before_the_start(tmp_path: Path) -> None:
    where = {"out": tmp_path / "out", "work": tmp_path / "work"}
    with pytest.raises(SettingError, match="black2022 has no dataset 'onse'; did you mean 'ones'"):
        reproduce(tiny(), ["onse"], **where)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("models", [0, 101])
def test_models_are_checked_before_the_start(models: int, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=f"models must be 1 to 100.*got {models}"):
        reproduce(
            load_paper("black2022").experiment,
            out=tmp_path / "out",
            work=tmp_path / "work",
            models=models,
        )
    assert not list(tmp_path.iterdir())


def test_a_figure_that_json_does_not_have_is_an_error(tmp_path: Path) -> None:
    broken = replace(tiny(), measure=lambda _: {"sum": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        reproduce(broken, ["ones"], out=tmp_path / "out", work=tmp_path / "work")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", PAPERS)
def test_the_committed_page_is_what_the_cells_say(name: str, tmp_path: Path) -> None:
    """And every picture that it names can be drawn from them, and is committed."""
    page = write_paper(load_paper(name), Store(), tmp_path)
    assert page.read_text() == (RESULTS / name / "README.md").read_text()
    drawn = {p.name for p in page.parent.iterdir() if p.suffix in (".svg", ".png", ".jsonl")}
    kept = {p.name for p in (RESULTS / name).iterdir() if p.suffix in (".svg", ".png", ".jsonl")}
    assert drawn == kept
    pictures = {name for name in drawn if not name.endswith(".jsonl")}
    assert all(f"]({name})" in page.read_text() for name in pictures)


@pytest.mark.parametrize("name", PAPERS)
def test_a_cheap_cell_gives_the_same_digits_again(
    request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    """What `make reproduce-check` does; some of these cells make their own rows."""
    paper = load_paper(name)
    if "german_credit" in paper.check:
        request.getfixturevalue("data_dir")
    assert differences(paper.cell(paper.check), Store(), tmp_path) == []
