import gzip
import hashlib
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast as hf
from holdfast.cli.main import main
from holdfast.datasets import CATALOGUE, ImagesName, TableName
from holdfast.datasets.sources import FILES
from holdfast.errors import FileError, SettingError


def test_the_shipped_data_is_whole_and_has_its_notice() -> None:
    data = hf.datasets.load("german_credit")
    assert data.X.shape == (1000, 20)
    assert (data.y == "approved").sum() == 700
    assert data.X.notna().all().all()
    assert data.licence == "CC BY 4.0"
    notice = Path(hf.datasets.__file__).parent / "bundled" / "ATTRIBUTION.md"
    assert "CC BY 4.0" in notice.read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(data.schema.decode(data.schema.encode(data.X), data.X), data.X)


def test_split_is_seeded_and_loses_nobody() -> None:
    data = hf.datasets.german_credit()
    train, test = data.split(test=0.2, seed=3)
    assert (len(train.X), len(test.X)) == (800, 200)
    assert sorted([*train.X.index, *test.X.index]) == list(range(1000))
    assert data.split(test=0.2, seed=3)[1].X.equals(test.X)
    assert (test.y == data.y[test.X.index]).all()


@pytest.mark.data
def test_heloc_from_the_data_directory(data_dir: Path) -> None:
    assert data_dir.is_dir()
    data = hf.datasets.load("heloc")
    assert data.X.shape == (9871, 23)
    assert set(data.y) == {"Good", "Bad"}
    x = data.schema.encode(data.X)
    assert (x.min(), x.max()) == (0, 1)


def test_missing_data_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileError, match=r"get it from the FICO community.*set HOLDFAST_DATA"):
        hf.datasets.load("heloc")
    with pytest.raises(FileError, match="set HOLDFAST_DATA"):
        hf.datasets.data_file("heloc/heloc.csv.gz")
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    with pytest.raises(FileError, match="no file 'heloc/heloc"):
        hf.datasets.load("heloc")
    with pytest.raises(FileError, match="no file 'heloc/heloc"):
        hf.datasets.data_file("heloc/heloc.csv.gz")
    with pytest.raises(FileError, match="did you mean 'heloc'"):
        hf.datasets.load("helok")
    with pytest.raises(SettingError, match="seeds"):
        hf.datasets.load("moons", seeds=3)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- every dataset


@pytest.fixture(params=sorted(get_args(TableName)))
def table(request: pytest.FixtureRequest) -> hf.datasets.Dataset:
    return loaded(request, request.param)


@pytest.fixture(params=sorted(get_args(ImagesName)))
def images(request: pytest.FixtureRequest) -> hf.datasets.Images:
    return loaded(request, request.param)


def loaded(request: pytest.FixtureRequest, name: str) -> Any:
    if CATALOGUE[name].files:
        request.getfixturevalue("data_dir")
    return hf.datasets.load(name)


def test_the_names_for_type_checkers_are_all_there_are() -> None:
    assert (
        {*get_args(TableName), *get_args(ImagesName)} == set(hf.datasets.DATASETS) == set(CATALOGUE)
    )
    for name, function in hf.datasets.DATASETS.items():
        assert getattr(hf.datasets, name) is function
        assert function.__doc__
    used = {path for about in CATALOGUE.values() for path in about.files}
    assert used == set(FILES)


def test_a_table_is_what_the_catalogue_says(table: hf.datasets.Dataset) -> None:
    about = CATALOGUE[table.name]
    assert (*table.X.shape, table.y.nunique()) == (about.rows, about.columns, about.classes)
    assert len(table.y) == len(table) == about.rows
    assert table.y.notna().all()
    assert table.favourable in set(table.y)
    assert table.licence
    assert table.citation
    assert table.source
    assert about.at_hand() in ("data directory", "bundled", "generated")
    features = {f.name: f for f in table.schema.features}
    assert list(features) == list(table.X.columns)
    assert any(f.change != "fixed" for f in features.values())
    rows = table.take(np.linspace(0, len(table) - 1, 200).astype(int))
    x = table.schema.encode(rows.X)
    assert torch.isfinite(x).all()
    pd.testing.assert_frame_equal(table.schema.decode(x, rows.X), rows.X)
    for attribute in (table.groups, table.parts):
        assert attribute is None or (
            attribute.index.equals(table.X.index) and attribute.notna().all()
        )


def test_a_table_splits_as_asked(table: hf.datasets.Dataset) -> None:
    table = table if len(table) < 50000 else table.take(np.arange(5000))
    for paper, test in table.papers.items():
        train, asked = table.paper_split(paper, seed=1)
        assert len(asked) == (test if test >= 1 else pytest.approx(test * len(table), abs=1))
        assert len(train) + len(asked) == len(table)
        assert not set(train.X.index) & set(asked.X.index)
    assert len(table.split(100)[1]) == 100
    for wrong in (0, -1, len(table), 2.5):
        with pytest.raises(SettingError, match="test must be"):
            table.split(wrong)
    with pytest.raises(SettingError, match="no split"):
        table.paper_split("unwritten")
    if table.groups is None:
        with pytest.raises(SettingError, match="no groups"):
            table.split(by_group=True)
    else:
        train, asked = table.split(0.3, seed=2, by_group=True)
        assert train.groups is not None
        assert asked.groups is not None
        assert not set(train.groups) & set(asked.groups)
        assert len(train) + len(asked) == len(table)
        assert -1 < len(asked) - 0.3 * len(table) <= table.groups.value_counts().max()
        assert not asked.X.equals(table.split(0.3, seed=3, by_group=True)[1].X)
    if table.parts is None:
        with pytest.raises(SettingError, match="no parts"):
            table.part("train")
    else:
        sizes = [len(table.part(name)) for name in table.parts.unique()]
        assert sum(sizes) == len(table)
        assert len(sizes) > 1 or table.name == "sba_loan"  # of which this test takes the first rows
        with pytest.raises(SettingError, match="no part 'nowhere'"):
            table.part("nowhere")


def test_images_are_what_the_catalogue_says(images: hf.datasets.Images) -> None:
    about = CATALOGUE[images.name]
    assert images.X.shape == (len(images), 28, 28) == (about.rows, 28, 28)
    assert images.X.dtype == np.uint8
    assert (images.X.min(), images.X.max()) == (0, 255)
    assert (len(images.y), images.y.nunique(), about.columns) == (about.rows, about.classes, 784)
    assert images.parts is not None
    assert sum(len(images.part(name)) for name in images.parts.unique()) == about.rows
    with pytest.raises(SettingError, match="no part"):
        images.part("nowhere")


@pytest.mark.data
def test_every_file_has_the_checksums_it_is_known_by(data_dir: Path) -> None:
    for file in FILES.values():
        packed = (data_dir / file.path).read_bytes()
        assert digest(packed) == file.packed, file.path
        assert digest(gzip.decompress(packed)) == file.content, file.path


# ---- as the papers use them


@pytest.mark.data
def test_sizes_that_papers_report(data_dir: Path) -> None:
    assert data_dir.is_dir()
    years = hf.datasets.load("sba_loan", rocoursenet=True)
    assert years.schema.width == 110
    assert [len(years.part(year)) for year in (1994, 2006, 2009)] == [16230, 51124, 11009]
    assert [len(side) for side in years.part(2009).paper_split("rocoursenet")] == [8257, 2752]
    pupils = hf.datasets.load("student", rocoursenet=True)
    assert pupils.schema.width == 83
    assert [int((pupils.part(s).y == "high").sum()) for s in ("GP", "MS")] == [146, 48]
    assert {
        hf.datasets.load(f"german_rocoursenet_{w}").schema.width for w in ("original", "corrected")
    } == {19}
    assert len(hf.datasets.load("taiwan_credit").balanced()) == 13272
    balanced = hf.datasets.load("give_me_some_credit").balanced(seed=1)
    assert balanced.y.value_counts().tolist() == [8357, 8357]
    assert len(hf.datasets.load("adult").part("train")) == 32561
    assert [len(side) for side in hf.datasets.load("seizure").paper_split("black2022")] == [
        7950,
        3550,
    ]
    assert [len(side) for side in hf.datasets.load("heloc_full").paper_split("black2022")] == [
        7844,
        2615,
    ]
    warfarin = hf.datasets.load("warfarin")
    assert set(warfarin.y) == {"low", "medium", "high"}
    assert warfarin.schema["CYP2C9 consensus"].change == "fixed"


@pytest.mark.data
def test_the_two_german_files_are_of_the_same_people(data_dir: Path) -> None:
    before = hf.datasets.load("german_statlog")
    after = hf.datasets.load("south_german")
    pairs = pd.read_csv(data_dir / "german_credit" / "row_map.csv.gz")
    old = before.take(pairs["statlog_row"])
    new = after.take(pairs["south_german_row"])
    assert (old.y.to_numpy() == new.y.to_numpy()).all()
    assert (old.X["duration"].to_numpy() == new.X["duration"].to_numpy()).all()


def test_the_command_lists_every_dataset(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["datasets"]) == 0
    shown = capsys.readouterr().out
    assert main(["datasets", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == sorted(hf.datasets.DATASETS)
    for entry in entries:
        for cell in (
            entry["name"],
            f"{entry['rows']:,}",
            entry["licence"],
            entry["source"],
            entry["at_hand"],
        ):
            assert cell in shown
