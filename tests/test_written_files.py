"""Whatever writes a file leaves the old one or the new one, whichever step fails; and a file of
ours that was changed is refused."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch
from torch import nn

import holdfast as hf
from holdfast.cli import demo
from holdfast.datasets import fetch
from holdfast.errors import FileError
from holdfast.images.io import write_images
from holdfast.render.charts import theme
from support.faulty_files import each_fault
from support.four_answers import four_answers
from support.frontiers import three_people
from support.images import pairs_by_hand
from support.plans import six_plans

Writer = Callable[[Path], object]
TABLE = pd.DataFrame({"age": [30, 41], "job": ["clerk", "a, b"]})


def crossed() -> hf.CrossValidity:
    matrix = np.array([[1 / 3, 0.1], [0.7, 2 / 3]])
    return hf.CrossValidity(("2007", "2008"), matrix, np.array([0.1, 2.0]), (3, 4), (1, 2))


@cache
def made(name: str) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "answers": four_answers,
        "images": pairs_by_hand,
        "plans": six_plans,
        "audit": lambda: six_plans().audit,
        "frontier": three_people,
        "report": lambda: hf.evaluate(four_answers()),
        "crossed": crossed,
    }
    return makers[name]()


def fitted() -> Any:
    train, _ = demo.applicants()
    return demo.pipeline().fit(train.X, train.y)


def model() -> hf.Model:
    torch.manual_seed(0)
    return hf.Model.of(nn.Sequential(nn.Linear(2, 2)), hf.Schema.box(2))


# the name of the file -> who writes it
WRITERS: dict[str, Writer] = {
    **{
        f"{name}{ending}": lambda path, name=name: made(name).save(path)
        for name, endings in {
            "answers": (".parquet", ".json", ".csv"),
            "images": (".parquet", ".npz", ".json", ".csv", ".svg", ".png", ".html"),
            "plans": (".parquet", ".json", ".csv"),
            "audit": (".parquet", ".json"),
            "frontier": (".parquet", ".json", ".csv"),
            "report": (".parquet", ".json", ".csv"),
            "crossed": (".json", ".csv"),
        }.items()
        for ending in endings
    },
    "page.html": lambda path: made("plans").report(path),
    "text.json": lambda path: made("report").to_json(path),
    "chart.png": lambda path: theme.save(made("audit").plot(), path),
    "chart.svg": lambda path: theme.save(made("audit").plot(), path),
    "chart.html": lambda path: theme.save(made("audit").plot(), path),
    "table.csv": lambda path: hf.datasets.write_table(TABLE, path),
    "table.json": lambda path: hf.datasets.write_table(TABLE, path),
    "table.parquet": lambda path: hf.datasets.write_table(TABLE, path),
    "x.npz": lambda path: write_images(path, np.zeros((2, 3, 3))),
    "schema.toml": lambda path: four_answers().schema.save(path),
    "recipe.toml": lambda path: hf.Recipe(hidden=(3,)).save(path),
    "model.safetensors": lambda path: model().save(path),
    "kept": lambda path: fetch._keep(b"content" * 1000, path),
    "model.skops": lambda path: demo.keep(fitted(), path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_the_old_or_the_new_one_whichever_step_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / name
    if place.suffix in (".png", ".svg", ".html"):
        pytest.importorskip("vl_convert")
    if place.suffix == ".skops":
        pytest.importorskip("skops")
    write = WRITERS[name]
    write(place)
    whole = len(place.read_bytes())
    old = b"the old file"
    place.write_bytes(old)
    seen = list[bytes]()
    for fault in each_fault(monkeypatch, lambda: write(place)):
        found = place.read_bytes()
        if found != old:  # stamps of time may be in it, so only the size can be told
            assert len(found) == pytest.approx(whole, rel=0.01), fault.steps
        assert os.listdir(tmp_path) == [name], fault.steps
        seen.append(found)
        place.write_bytes(old)
    assert seen[0] == old
    assert len(seen) >= 4  # open, write, fsync, replace
    assert place.read_bytes() != old


SEALED = ["answers", "images", "plans", "audit", "frontier", "report"]


@pytest.mark.parametrize("name", [*SEALED, "crossed"])
def test_a_flipped_bit_is_noticed(name: str, tmp_path: Path) -> None:
    result = made(name)
    file = tmp_path / (f"{name}.parquet" if name in SEALED else f"{name}.json")
    result.save(file)
    load = type(result).load
    as_saved = load(file).to_json()
    data = file.read_bytes()
    noticed = 0
    for bit in np.random.default_rng(0).choice(8 * len(data), 1000, replace=False).tolist():
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        try:
            again = load(file)
        except FileError:
            noticed += 1
        else:
            assert again.to_json() == as_saved
    # every byte of a Parquet file counts, white space in JSON does not
    assert noticed == 1000 if name in SEALED else noticed > 800


@pytest.mark.parametrize("name", [*SEALED, "crossed"])
def test_a_file_that_was_cut_is_noticed(name: str, tmp_path: Path) -> None:
    result = made(name)
    file = tmp_path / (f"{name}.parquet" if name in SEALED else f"{name}.json")
    result.save(file)
    data = file.read_bytes()
    for size in np.linspace(0, len(data) - 2, 40, dtype=int).tolist():
        file.write_bytes(data[:size])
        with pytest.raises(FileError):
            type(result).load(file)


def test_a_csv_file_that_was_cut_within_a_row(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b'age,job,pay\n30,"a, b",1\n41,clerk,2')  # by hand, without a last line end
    assert hf.datasets.read_table(file)["job"].tolist() == ["a, b", "clerk"]
    for cut in (b"41", b"41,cl", b'41,"a, b"', b'41,"a,'):
        file.write_bytes(b'age,job,pay\n30,"a, b",1\n' + cut)
        with pytest.raises(FileError, match=r"a\.csv"):
            hf.datasets.read_table(file)
    file.write_bytes(b'age,job\n30,"a\nb"')  # a line end within quotes
    assert hf.datasets.read_table(file)["job"].tolist() == ["a\nb"]


@pytest.mark.parametrize("load", [hf.Schema.load, hf.Recipe.load, hf.Plans.load])
def test_a_pipe_is_refused_and_does_not_hang(load: Callable[[Path], Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(FileError, match=r"pipe\.toml' is not a regular file"):
        load(tmp_path / "pipe.toml")


@pytest.mark.parametrize("load", [hf.Schema.load, hf.Recipe.load])
def test_toml_without_end(load: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    for text in ("a = " + "[" * 100_000, "a = 1" + "0" * 5000, tomli_w.dumps({"a": "b"}) + "\0"):
        file.write_text(text)
        with pytest.raises(FileError, match=r"a\.toml"):
            load(file)
