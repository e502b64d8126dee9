"""What is asked of plans by mistake, or by several threads at once."""

import copy
import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import holdfast as hf
from holdfast._core.lock import OwnLock
from holdfast.errors import HoldfastError, SettingError
from holdfast.plans import folder, trained
from holdfast.plans.banks import Banks
from support.frontiers import three_people
from support.plans import six_plans

DATA = hf.datasets.overlapping(n=120)
RECIPE = hf.Recipe(hidden=(), epochs=5, lr=0.1)
MODEL = RECIPE.fit(DATA.X, DATA.y, DATA.schema)
SIZES = {"guide": 4, "calibration": 14, "audit": 16}


def recourse(**changes: Any) -> hf.Recourse:
    banks = hf.Banks(**{"recipe": RECIPE, "family": "retrain", "models": SIZES} | changes)
    return hf.Recourse(MODEL, DATA.X, DATA.y, hold=0.8, banks=banks)


# ---- arguments


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in ("hold", "confidence") for value in ("x", None, 2, 0, True)],
        *[("seed", value) for value in (-1, "x", None, 1.5)],
    ],
)
def test_arguments_of_a_recourse(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=rf"^{name} must .*{re.escape(str(value))}"):
        hf.Recourse(MODEL, DATA.X, DATA.y, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("models", 5),
        ("models", {"guide": "x"}),
        ("models", {"guide": -1}),
        ("workers", "x"),
        ("workers", 0),
        ("cache", 5),
        ("time", "nope"),
        ("groups", "nope"),
    ],
)
def test_arguments_of_banks(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=name):
        recourse(**{name: value}).train()


@pytest.mark.parametrize("holds", ["x", (), (0.8, 0.8), (0, 0.5), (0.5, None), 3, ("0.8",)])
def test_holds_of_a_frontier(holds: Any) -> None:
    with pytest.raises(SettingError, match="holds must be"):
        recourse().frontier(DATA.X.head(2), "yes", holds=holds)


@pytest.mark.parametrize("name", ["/dev/null/x", "a" * 300, "a\0b"])
def test_places_that_cannot_be(name: str) -> None:
    with pytest.raises(HoldfastError, match="cannot"):
        recourse().train().save(name)


# ---- threads


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """What so many threads get, which start together."""
    start = threading.Barrier(count)
    got = list[Any]()

    def run() -> None:
        start.wait()
        got.append(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == count
    return got


def test_threads_train_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[object]()
    train = Banks.train

    def counted(self: Banks, *args: Any, **more: Any) -> Any:
        calls.append(self)
        return train(self, *args, **more)

    monkeypatch.setattr(Banks, "train", counted)
    shared = recourse()
    people = DATA.X[MODEL.predict(DATA.X) == "no"].head(3)
    tables = at_once(8, lambda: shared.plans(people, "yes").table())
    assert len(calls) == 1
    alone = recourse().plans(people, "yes").table()
    for table in tables:
        pd.testing.assert_frame_equal(table, alone)
    assert len({id(method) for method in at_once(8, lambda: shared.method)}) == 1


def test_threads_read_each_part_of_a_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recourse().train().save(tmp_path / "r")
    loaded, _ = folder.load(tmp_path / "r")[1:]
    read = list[Any]()
    load = trained.load_bank

    def counted(path: Any, **more: Any) -> Any:
        read.append(path)
        return load(path, **more)

    monkeypatch.setattr(trained, "load_bank", counted)
    banks = at_once(8, lambda: (loaded.parts.audit, loaded.parts.calibration))
    assert len(read) == 2
    assert len({id(part) for parts in banks for part in parts}) == 2


def test_what_has_a_lock_can_be_copied() -> None:
    shared = recourse().train()
    for other in (copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert other.bank.audit.fingerprint() == shared.bank.audit.fingerprint()
        assert isinstance(other._lock, OwnLock)
        assert other._lock is not shared._lock
        with shared._lock, other._lock:
            assert other.is_trained


# ---- charts

NASTY = "</script><script>alert(1)</script><!--"


@pytest.mark.parametrize("kind", ["audit", "frontier"])
def test_no_name_leaves_the_script_of_a_chart(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    from holdfast.render.charts.theme import save

    if kind == "audit":
        audit = six_plans().audit
        cfs = audit.cfs
        names = pd.Index([NASTY, *cfs.index[1:]])
        object.__setattr__(cfs, "before", cfs.before.set_axis(names))
        object.__setattr__(cfs, "after", cfs.after.set_axis(names))
        chart = audit.plot()
    else:
        chart = three_people(names=(NASTY, "Ben", "Cyd")).plot()
    clean = three_people().plot() if kind == "frontier" else six_plans().audit.plot()
    save(chart, tmp_path / "chart.html")
    pages = [
        (chart.to_html(), clean.to_html()),
        (chart.copy().properties(width=300).to_html(), clean.to_html()),
        ((tmp_path / "chart.html").read_text(encoding="utf-8"), None),
        (chart.to_json(), clean.to_json()),
    ]
    for page, other in pages:
        assert "alert(1)" in page
        assert NASTY not in page
        assert "<script>alert" not in page
        if other is not None:
            assert page.count("</script") == other.count("</script")
