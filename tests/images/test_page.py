"""Pages of counterfactual images tell of every pair, and load and run nothing."""

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.images import grid as picture
from holdfast.images import page
from support.images import pairs_by_hand
from support.pages import EVIL, Reader, pixels_of


def test_the_report_tells_of_every_pair(tmp_path: Path) -> None:
    text = (
        pairs_by_hand(("zero", "one", "two"))
        .report(tmp_path / "deep" / "r.html")
        .read_text(encoding="utf-8")
    )
    rows = [row for row in Reader(text).rows if len(row) == 8][1:]
    cells = [[re.sub(r"\s+", " ", cell).strip() for cell in row] for row in rows]
    assert [row[0] for row in cells] == ["0", "0", "1", "1"]
    assert [row[2] for row in cells] == ["zero → one", "zero → two", "two → one", "zero → two"]
    assert [row[3] for row in cells] == [
        "found",
        "already met",
        "not foundthe best attempt has probability 0.30; wait",
        "found",
    ]
    assert [row[4:] for row in cells] == [
        ["2", "1.40", "5", "60.0%"],
        ["0", "0.00", "0", "70.0%"],
        ["", "", "700", "30.0%"],
        ["1", "0.20", "2", "90.0%"],
    ]
    told = (
        "2 images, 4 pairs of an image and a wanted class: 2 answered, 1 met from the start; "
        "half of the answers change"
    )
    assert f"{told} 1.5 pixels (12.5% of an image) or fewer." in text
    assert "DeDUCE(mu=2)" in text
    assert text.count("<svg") == 2
    assert text.count("<img") == 3 * 4 + 3 * 2  # all pairs, and the answers in large


def test_pages_load_nothing_and_run_nothing_from_names(tmp_path: Path) -> None:
    cfs = pairs_by_hand((EVIL, "b", "c"))
    for text, scripts in (
        (cfs.report(tmp_path / "r.html").read_text(encoding="utf-8"), 1),
        (cfs._repr_html_(), 0),
    ):
        seen = Reader(text)
        assert seen.count("script") == scripts
        for tag, attributes in seen.tags:
            assert not {name for name in attributes if name.startswith("on")}
            assert "href" not in attributes
            if "src" in attributes:
                assert tag == "img"
                assert (attributes["src"] or "").startswith("data:image/png;base64,")
        assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"|http-equiv', "", text)


def test_images_in_pages_are_those_of_the_pairs() -> None:
    import base64

    (card, *_) = page.cards(pairs_by_hand(), np.array([0, 3]))
    shown = [
        pixels_of(base64.b64decode(url.partition(",")[2]))
        for url in map(card.__getitem__, ("before", "after", "changed"))
    ]
    cfs = pairs_by_hand()
    wanted = (
        picture.colours(cfs.x[0]),
        picture.colours(cfs.x_cf[0]),
        picture.difference(cfs.x[0], cfs.x_cf[0]),
    )
    for ours, theirs in zip(shown, wanted, strict=True):
        assert np.array_equal(ours, theirs)


def test_a_report_without_the_plot_extra_has_no_charts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def without(name: str, *more: Any) -> Any:
        if name == "altair":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    text = pairs_by_hand().report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<svg" not in text
    assert "pip install &#39;holdfast[plot]&#39;" in text or "pip install 'holdfast[plot]'" in text


def test_a_long_report_shows_answers_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_PAIRS", 3)
    text = pairs_by_hand(codes=(2, 2, 0, 0)).report(tmp_path / "r.html").read_text(encoding="utf-8")
    rows = [row for row in Reader(text).rows if len(row) == 8][1:]
    assert [row[0] for row in rows] == ["0", "1", "1"]
    assert "3 of 4 pairs are shown" in text


def test_the_table_of_classes_has_medians() -> None:
    cfs = replace(pairs_by_hand(codes=(0, 0, 0, 0)), own=np.array([0, 0, 2, 0]))
    table = page.matrix(cfs)
    assert table is not None
    assert table["columns"] == ["1", "2"]
    assert [(name, [value for value, _ in cells]) for name, cells in table["lines"]] == [
        ("0", ["2", "0.5"]),
        ("2", ["12", ""]),
    ]
    assert page.matrix(replace(cfs, own=np.zeros(4, dtype=np.int64))) is None


def test_the_notebook_table_shows_the_first_pairs() -> None:
    text = page.pairs_table(pairs_by_hand(), most=3)
    assert "The first 3 of 4 pairs." in text
    rows = Reader(text).rows
    assert [row[2] for row in rows[1:]] == ["0 → 1", "0 → 2", "2 → 1"]
    assert pairs_by_hand()._repr_html_() == page.pairs_table(pairs_by_hand())
