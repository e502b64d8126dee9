"""The folder of a Recourse: nothing else is harmed, nothing is half there, nothing is believed."""

import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import holdfast as hf
from holdfast._core.seal import sealed, unsealed
from holdfast.errors import FileError
from holdfast.retraining.split import BankSplit
from support.faulty_files import each_fault

torch.set_num_threads(1)
DATA = hf.datasets.overlapping(n=120)
SIZES = {"guide": 3, "calibration": 14, "audit": 15}


@cache
def recourse(seed: int = 0) -> hf.Recourse:
    banks = hf.Banks(family="retrain", models=SIZES)
    recipe = hf.Recipe(hidden=(), epochs=3, lr=0.1)
    return hf.Recourse(recipe, DATA.X, DATA.y, hold=0.8, banks=banks, seed=seed).train()


def prints(of: hf.Recourse) -> list[str]:
    return [part.fingerprint() for part in of.bank]


def names(folder: Path) -> list[str]:
    return sorted(name.partition("-")[0] for name in os.listdir(folder))


OURS = ["audit", "calibration", "guide", "recourse.json"]


# ---- what is there is not harmed


def test_a_folder_with_anything_else_is_refused_in_every_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "thesis.tex").write_text("the only copy")
    monkeypatch.chdir(project)
    (tmp_path / "link").symlink_to(project)
    (tmp_path / "here").symlink_to(".")
    spellings = [
        "",
        ".",
        "./",
        "..",
        "../project",
        "../project/",
        "data/..",
        "./data/../.",
        project,
        f"{project}/",
        f"{tmp_path}/link",
        f"{tmp_path}/link/",
        f"{tmp_path}/link/.",
        f"{tmp_path}/here/project",
        "/",
        "thesis.tex",
        project / "thesis.tex",
        "thesis.tex/below",
        "/dev/null/x",
        "a" * 300,
        "a\0b",
    ]
    for spelling in spellings:
        with pytest.raises(FileError, match=r"cannot (save|write)"):
            recourse().save(spelling)
    assert sorted(os.listdir(tmp_path)) == ["here", "link", "project"]
    assert sorted(os.listdir(project)) == ["data", "thesis.tex"]
    assert (project / "thesis.tex").read_text() == "the only copy"
    monkeypatch.chdir(project / "data")
    for spelling in ("", ".", "..", "../data"):  # an empty one, too
        with pytest.raises(FileError, match="working directory, or a folder above it"):
            recourse().save(spelling)
    assert not os.listdir()


@pytest.mark.parametrize(
    "name", ["notes.txt", ".hidden", "guide.bank", "audit-1.bank", "Recourse.json", "guide-x.part"]
)
def test_one_foreign_entry_is_enough(name: str, tmp_path: Path) -> None:
    folder = recourse().save(tmp_path / "folder")
    (folder / name).write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileError, match=f"{name!r} lies there, which is of no Recourse"):
        recourse(1).save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_names_of_ours_that_are_something_else(tmp_path: Path) -> None:
    for name in ("recourse.json", f"guide-{'0' * 16}.bank"):
        for make in (Path.mkdir, lambda path: path.symlink_to("/etc/hosts"), os.mkfifo):
            folder = tmp_path / "folder"
            folder.mkdir()
            make(folder / name)
            with pytest.raises(FileError, match=f"{name!r} lies there"):
                recourse().save(folder)
            assert os.listdir(folder) == [name]
            shutil.rmtree(folder)
    folder.mkdir()
    for text in ("", "{", "[]", '{"file": "results"}', "[" * 100_000):
        (folder / "recourse.json").write_text(text)
        with pytest.raises(FileError, match=r"'recourse\.json' lies there"):
            recourse().save(folder)
        assert (folder / "recourse.json").read_text() == text


def test_a_new_an_empty_and_an_own_folder_are_written(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "new" / "one", tmp_path / "empty"):
        for seed in (0, 1, 0):
            assert recourse(seed).save(folder) == folder
            assert names(folder) == OURS
            assert prints(hf.Recourse.load(folder)) == prints(recourse(seed))


def test_what_cannot_be_saved_leaves_no_folder(tmp_path: Path) -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x.sum(1), -x.sum(1)], 1)

    model = hf.Model.of(Odd(), recourse().schema, classes=recourse().model.classes)
    odd = hf.Recourse(model, DATA.X, DATA.y, hold=0.8, banks=hf.Banks(ready=recourse().bank))
    odd.train()
    with pytest.raises(hf.HoldfastError, match=r"cannot be saved|cannot write down"):
        odd.save(tmp_path / "folder")
    assert not os.listdir(tmp_path)


def test_other_users_may_read_what_they_may_usually_read(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = recourse().save(tmp_path / "folder")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


# ---- the old one or the new one


def test_whichever_step_fails_there_is_the_old_or_the_new_recourse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    whole = {seed: prints(recourse(seed)) for seed in (0, 1)}
    recourse(0).save(folder)
    seen = list[int]()
    for fault in each_fault(monkeypatch, lambda: recourse(1).save(folder)):
        found = prints(hf.Recourse.load(folder))
        assert found in whole.values(), fault.steps
        seen.append(next(seed for seed, one in whole.items() if one == found))
        recourse(0).save(folder)
        assert names(folder) == OURS
    assert set(seen) == {0, 1}
    assert seen == sorted(seen)


def test_a_first_save_that_fails_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    whole = 0
    for fault in each_fault(monkeypatch, lambda: recourse().save(folder)):
        if (folder / "recourse.json").exists():
            assert prints(hf.Recourse.load(folder)) == prints(recourse())
            whole += 1
        else:
            assert not folder.exists() or "replace" not in fault.steps[-1:]
        recourse().save(folder)
        assert names(folder) == OURS
        shutil.rmtree(folder)
    assert whole


def test_savers_and_readers_at_once(tmp_path: Path) -> None:
    folder = recourse(0).save(tmp_path / "folder")
    whole = [prints(recourse(seed)) for seed in (0, 1)]
    failed = list[BaseException]()
    done = threading.Event()

    def saves(seed: int) -> None:
        for _ in range(10):
            recourse(seed).save(folder)

    def reads() -> None:
        while not done.is_set():
            loaded = hf.Recourse.load(folder)
            assert loaded.trained.parts.guide.fingerprint() in {first for first, *_ in whole}

    def work(what: Callable[[], None]) -> None:
        try:
            what()
        except BaseException as error:
            failed.append(error)

    reader = threading.Thread(target=work, args=(reads,))
    savers = [threading.Thread(target=work, args=(lambda s=seed: saves(s),)) for seed in (0, 1)]
    for thread in (reader, *savers):
        thread.start()
    for thread in savers:
        thread.join()
    done.set()
    reader.join()
    assert not failed
    assert prints(hf.Recourse.load(folder)) in whole
    assert names(folder) == OURS


# ---- nothing is believed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recourse().save(tmp_path / "folder")


def flipped(data: bytes, count: int) -> Iterator[bytes]:
    rng = np.random.default_rng(0)
    for bit in rng.choice(8 * len(data), count, replace=False):
        changed = np.frombuffer(data, dtype=np.uint8).copy()
        changed[bit // 8] ^= 1 << bit % 8
        yield changed.tobytes()


def test_flipped_bits_of_the_file_of_facts(folder: Path) -> None:
    file = folder / "recourse.json"
    data = file.read_bytes()
    content = unsealed("recourse", 1, json.loads(data))
    noticed = 0
    for changed in flipped(data, 1000):
        file.write_bytes(changed)
        try:
            loaded = hf.Recourse.load(folder)
        except FileError:
            noticed += 1
        else:
            found = unsealed("recourse", 1, json.loads(file.read_bytes()))
            assert json.dumps(found) == json.dumps(content)
            assert prints(loaded) == prints(recourse())
    assert noticed > 900


@pytest.mark.parametrize("part", ["guide", "audit"])
def test_flipped_bits_of_a_bank(folder: Path, part: str) -> None:
    file = next(folder.glob(f"{part}-*.bank"))
    data = file.read_bytes()
    for changed in flipped(data, 300):
        file.write_bytes(changed)
        try:
            loaded = hf.Recourse.load(folder).bank
        except FileError:
            continue
        again = [bank.fingerprint() for bank in loaded]
        assert again == prints(recourse())
        assert loaded.guide.origins() == recourse().bank.guide.origins()


def forged(folder: Path, **changes: Any) -> None:
    file = folder / "recourse.json"
    content = unsealed("recourse", 1, json.loads(file.read_bytes())) | changes
    file.write_text(json.dumps(sealed("recourse", 1, content)))


@pytest.mark.parametrize(
    "changes",
    [
        {"hold": 0},
        {"hold": "0.95"},
        {"hold": 1.5},
        {"confidence": None},
        {"confidence": True},
        {"seed": 0.5},
        {"kind": "kind"},
        {"kind": []},
        {"counts": {}},
        {"counts": {"guide": 1, "calibration": -1, "audit": 3}},
        {"counts": {"guide": 1, "calibration": 1, "judges": 3}},
        {"counts": 3},
        {"spread": 0.5},
        {"spread": "x"},
        {"spread": 10**400},
        {"from_rows": 2},
        {"likeness": {}},
        {"likeness": {"distance": "x"}},
        {"likeness": 3},
        {"warnings": None},
        {"banks": {}},
        {"banks": None},
        {"banks": {"guide": "../../etc", "audit": "x"}},
    ],
)
def test_facts_that_cannot_be_are_refused(folder: Path, changes: dict[str, Any]) -> None:
    forged(folder, **changes)
    with pytest.raises(FileError):
        hf.Recourse.load(folder)


def test_a_bank_is_the_one_that_was_saved(folder: Path, tmp_path: Path) -> None:
    """A bank of other models, and a copy of the models that choose, do not audit."""
    other = recourse(1).save(tmp_path / "other")
    audit = next(folder.glob("audit-*"))
    for strange in (next(other.glob("audit-*")), next(folder.glob("calibration-*"))):
        shutil.copy(strange, audit)
        with pytest.raises(FileError, match="it is not the bank that was saved"):
            _ = hf.Recourse.load(folder).bank
    split = recourse().bank
    for parts in (
        BankSplit(split.guide, split.audit, split.audit),
        BankSplit(split.guide, split.calibration, split.guide.join(split.audit)),
    ):
        ready = hf.Recourse(
            recourse().model, hold=0.8, banks=hf.Banks(ready=parts, models=SIZES)
        ).train()
        overlapping = ready.save(tmp_path / "overlapping")
        with pytest.raises(FileError, match="they cannot judge what they had a part in"):
            _ = hf.Recourse.load(overlapping).bank


def test_a_bank_that_was_replaced_says_so(folder: Path) -> None:
    loaded = hf.Recourse.load(folder)
    recourse(1).save(folder)
    with pytest.raises(FileError, match="another Recourse was saved there; load the folder again"):
        _ = loaded.bank


def test_a_folder_of_another_time_is_refused_with_a_sentence(folder: Path) -> None:
    file = folder / "recourse.json"
    content = json.loads(file.read_bytes())
    file.write_text(json.dumps({name: v for name, v in content.items() if name != "format"}))
    with pytest.raises(FileError, match="before files had a format number; save it again"):
        hf.Recourse.load(folder)
    file.write_text(json.dumps(sealed("recourse", 7, {})))
    with pytest.raises(FileError, match="written in format 7, and this version"):
        hf.Recourse.load(folder)


def test_what_is_no_file_or_has_no_end_is_refused_at_once(folder: Path) -> None:
    file = folder / "recourse.json"
    text = file.read_bytes()
    file.write_bytes(text + b" " * (1 << 24))
    with pytest.raises(FileError, match="bytes, more than"):
        hf.Recourse.load(folder)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FileError, match="not a regular file"):
        hf.Recourse.load(folder)
