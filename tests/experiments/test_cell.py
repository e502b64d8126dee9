"""A finished cell is a file that is whole, and tells where it comes from."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast as hf
from experiments.cell import FOLDER, ROOT, Cell, Outcome, Store, hash_of, plain, provenance
from experiments.parts import OutOfTime, Parts


def sum_of(numbers: list[int], parts: Parts) -> Outcome:
    """A part for each number, and their sum."""
    made = [parts.arrays(f"part {n}", lambda n=n: {"n": np.array(n)}) for n in numbers]
    figures = {"sum": sum(int(one["n"]) for one in made), "half": 0.5}
    return Outcome(figures, {"numbers": hash_of(numbers)}, {"each": np.array(numbers)})


def cell(**changed: Any) -> Cell:
    whole = Cell(
        paper="paper",
        dataset="numbers",
        group="sum",
        seed=3,
        make=lambda parts: sum_of([1, 2], parts),
        settings={"shift": hf.Shift(eta=0.5), "layers": (1, 2)},
        minutes=1.0,
    )
    return replace(whole, **changed)


def made(tmp_path: Path, **changed: Any) -> Store:
    store = Store(tmp_path / "cells")
    assert store.make(cell(**changed), tmp_path / "work", np.inf)
    return store


def test_a_file_tells_figures_settings_and_where_they_come_from(tmp_path: Path) -> None:
    store = made(tmp_path)
    found = store.find(cell())
    assert found is not None
    assert found.figures == {"sum": 3, "half": 0.5}
    assert found.arrays["each"].tolist() == [1, 2]
    told = json.loads((tmp_path / "cells/paper/numbers/sum-3.json").read_text())
    assert told["cell"] == "paper/numbers/sum/3"
    assert told["data"] == {"numbers": hash_of([1, 2])}
    assert told["settings"]["layers"] == [1, 2]
    assert told["settings"]["shift"] == {"is": "Shift", **hf.Shift(eta=0.5).to_dict()}
    assert set(provenance()) < set(told)
    assert told["threads"] == torch.get_num_threads()
    assert told["minutes"] >= 0


def test_the_commit_is_that_of_this_checkout() -> None:
    told = provenance()
    if told["commit"] is None:
        pytest.skip("not a checkout")
    assert len(told["commit"]) == 40
    assert told["changed"] in (True, False)


def test_other_settings_make_a_cell_missing(tmp_path: Path) -> None:
    store = made(tmp_path)
    assert store.find(cell(settings={"shift": hf.Shift(eta=0.6), "layers": (1, 2)})) is None
    assert store.find(cell()) is not None  # and leave the file alone


@pytest.mark.parametrize("what", ["sum-3.json", "sum-3.npz"])
def test_a_file_that_was_cut_short_is_set_aside_and_its_cell_made_again(
    tmp_path: Path, what: str
) -> None:
    store = made(tmp_path)
    path = tmp_path / "cells/paper/numbers" / what
    path.write_bytes(path.read_bytes()[:40])
    assert store.find(cell()) is None
    assert (tmp_path / "cells/paper/numbers/sum-3.json.broken").is_file()
    assert store.make(cell(), tmp_path / "work", np.inf)
    found = store.find(cell())
    assert found is not None
    assert found.arrays["each"].tolist() == [1, 2]


def test_missing_arrays_make_a_cell_missing(tmp_path: Path) -> None:
    store = made(tmp_path)
    (tmp_path / "cells/paper/numbers/sum-3.npz").unlink()
    assert store.find(cell()) is None


def test_a_cell_goes_on_where_its_time_ended(tmp_path: Path) -> None:
    begun = list[int]()

    def make(parts: Parts) -> Outcome:
        def part(n: int) -> dict[str, Any]:
            begun.append(n)
            if n == 2 and len(begun) == 2:
                raise OutOfTime
            return {"n": np.array(n)}

        total = sum(int(parts.arrays(f"{n}", lambda n=n: part(n))["n"]) for n in (1, 2, 3))
        return Outcome({"sum": total}, {})

    store = Store(tmp_path / "cells")
    one = cell(make=make)
    assert not store.make(one, tmp_path / "work", np.inf)
    assert store.find(one) is None
    assert store.make(one, tmp_path / "work", np.inf)
    assert begun == [1, 2, 2, 3]
    found = store.find(one)
    assert found is not None
    assert found.figures == {"sum": 6}
    assert not found.arrays


def test_no_part_is_begun_after_the_end(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells")
    assert not store.make(cell(), tmp_path / "work", 0.0)
    assert not list(tmp_path.rglob("*.npz"))


def test_a_figure_that_json_does_not_have_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells")
    broken = cell(make=lambda _: Outcome({"x": float("nan")}, {}))
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.make(broken, tmp_path / "work", np.inf)
    assert store.find(broken) is None


def test_the_hash_of_rows_knows_every_number_name_and_order() -> None:
    table = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    same = hash_of(table.copy())
    others = [
        table.rename(columns={"a": "c"}),
        table.assign(a=[1.0, 2.5]),
        table.assign(b=["x", "z"]),
        table.iloc[::-1],
        torch.tensor([1.0, 2.0]),
        torch.tensor([[1.0], [2.0]]),
        [1.0, 2.0],
        {"a": 1.0},
        hf.Shift(),
    ]
    hashes = [hash_of(value) for value in others]
    assert hash_of(table) == same
    assert same not in hashes
    assert len(set(hashes)) == len(hashes)


def test_settings_are_compared_as_json() -> None:
    assert plain({"a": (1, 2), "b": hf.Shift()}) == plain({"a": [1, 2], "b": hf.Shift()})
    assert plain(hf.Shift(eta=0.1)) != plain(hf.Shift(eta=0.2))


# ---- the finished cells of this repository


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def history() -> None:
    """The commits of this checkout; a copy without them has nothing to compare."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("not a checkout with its history")


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.json")), ids=lambda path: path.stem)
def test_a_cell_was_made_by_a_commit_that_is_there(history: None, path: Path) -> None:
    told = json.loads(path.read_text())
    assert git("merge-base", "--is-ancestor", told["commit"], "HEAD").returncode == 0
    assert told["changed"] is False
