"""Pictures of models side by side: what they are made of, and that they can be drawn."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from experiments.altmeyer2025.charts import comparison_chart, image_grid
from experiments.altmeyer2025.compare import compare
from experiments.altmeyer2025.comparison import Comparison
from holdfast.render.charts.paths import GRID, decision_paths
from holdfast.render.charts.theme import save, to_svg
from holdfast.render.png import png

N = 80
RNG = np.random.default_rng(0)
SIDE = np.arange(N) % 2
FLAT = pd.DataFrame(RNG.normal(0, 0.4, (N, 2)) + 2 * SIDE[:, None], columns=["a", "b"])
Y = pd.Series(np.where(SIDE == 1, "yes", "no"))
SCHEMA = hf.Schema.infer(FLAT)


def leaning(a: float, b: float) -> hf.Model:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-a, -b], [a, b]]))
        layer.bias.zero_()
    return hf.Model.of(layer, SCHEMA, classes=["no", "yes"])


@pytest.fixture(scope="module")
def study() -> Comparison:
    models = {"plain": leaning(1.0, 1.0), "taught": leaning(0.1, 2.0)}
    return compare(
        models, FLAT, y=Y, protected=["a"], repeats=5, rows=8, energies=[5.0], attacks=(0.0, 0.5)
    )


def datasets(chart: Any) -> list[pd.DataFrame]:
    """The tables that a chart holds."""
    return [pd.DataFrame(rows) for rows in chart.to_dict()["datasets"].values()]


def test_a_comparison_shows_its_figures(study: Comparison) -> None:
    chart = study.plot()
    bars = [t for t in datasets(chart) if "reduction" in t.columns]
    assert len(bars) == 2
    shown = pd.concat(bars).sort_values(["case", "metric"])["reduction"].tolist()
    assert shown == pytest.approx(
        study.reductions().sort_values(["case", "metric"])["reduction"].tolist()
    )
    lines = [t for t in datasets(chart) if "accuracy" in t.columns]
    assert sorted(t["attack"].iloc[0] for t in lines) == ["FGSM", "PGD"]
    text = to_svg(chart)
    for words in (
        "Percent less than plain, all may change",
        "Percent less than plain, protected held",
        "taught",
    ):
        assert words in text
    line = study.reductions().iloc[0]
    assert f"{line['reduction']:.1f} ± {line['se']:.1f}" in text
    with pytest.raises(hf.HoldfastError, match="no round has counterfactuals of two models"):
        comparison_chart(study.reductions().assign(reduction=np.nan), study.curves)


def test_paths_have_a_map_for_each_model_and_case(study: Comparison) -> None:
    chart = study.paths("yes", rows=6)
    spec = chart.to_dict()
    titles = [panel["title"]["text"] for row in spec["vconcat"] for panel in row["hconcat"]]
    assert titles == [
        "plain, all may change",
        "taught, all may change",
        "plain, a held",
        "taught, a held",
    ]
    tables = datasets(chart)
    steps = [t for t in tables if "angle" in t.columns]
    assert len(steps) == 4
    held = [t for t in steps if (t["x"] == t["x2"]).all()]
    assert len(held) == 2  # the pictures in which the first feature stays: arrows go straight up
    for t in held:
        assert (t["angle"][t["y2"] > t["y"]] % 360).abs().max() == 0
        assert t["found"].any()
    free = next(t for t in steps if (t["x"] != t["x2"]).all())
    assert free["angle"].between(1, 89).all()  # to the right and up
    assert all(set(t["x"]) <= set(FLAT["a"]) for t in steps)
    to_svg(chart)


def test_the_map_is_what_the_model_says(study: Comparison) -> None:
    tables = datasets(study.paths("yes", rows=3))
    maps = [t for t in tables if "p" in t.columns]
    assert len(maps) == 2  # one for each model, whatever the case
    for t in maps:
        assert len(t) < 5000
        area = ((t["right"] - t["left"]) * (t["top"] - t["bottom"])).sum()
        whole = (t["right"].max() - t["left"].min()) * (t["top"].max() - t["bottom"].min())
        assert area == pytest.approx(whole)  # it has no gaps, and nothing lies twice
    mine = next(t for t in maps if len(t) == min(len(m) for m in maps))
    height = (mine["top"].max() - mine["bottom"].min()) / GRID
    # The middle of the lowest cell of each rectangle.
    middle = pd.DataFrame(
        {"a": (mine["left"] + mine["right"]) / 2, "b": mine["bottom"] + height / 2}
    )
    near = list[bool]()
    for model in study.models.values():
        p = torch.softmax(model.score_frame(middle).double(), 1)[:, 1].detach().numpy()
        near.append(bool((np.abs(p - mine["p"]) <= 0.05 + 1e-6).all()))
    assert near.count(True) == 1


def test_a_map_takes_two_features_and_known_classes(study: Comparison) -> None:
    with pytest.raises(hf.HoldfastError, match="no class 'maybe'; they have 'no', 'yes'"):
        decision_paths(study.models, FLAT, Y, {"x": {}}, "maybe")
    with pytest.raises(hf.HoldfastError, match="there are no answers"):
        decision_paths(study.models, FLAT, Y, {}, "yes")
    three = hf.Model.of(nn.Linear(3, 2), hf.Schema.box(3, 0, 1))
    with pytest.raises(
        hf.HoldfastError, match=r"exactly two numeric features, got \['x0', 'x1', 'x2'\]"
    ):
        decision_paths({"m": three}, FLAT, Y, {"x": {}}, 1)
    always = leaning(0.0, 0.0)
    always.module.bias.data[1] = 9.0
    everybody = replace(study, models={"always": always})
    with pytest.raises(hf.HoldfastError, match="every row gets 'yes' from one of the models"):
        everybody.paths("yes")


def test_images_stand_in_rows_by_model(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 3 * 20).view(3, 20)
    chart = image_grid(
        {"row": x, "taught": x.flip(0).view(3, 4, 5).numpy()}, titles=["1 to 7", 2, 3], shape=(4, 5)
    )
    (cells,) = datasets(chart)
    assert cells[["model", "column"]].to_numpy().tolist() == [
        [m, i] for m in ("row", "taught") for i in range(3)
    ]
    assert cells["url"][0] == cells["url"][5]  # the first row is the last of those that are flipped
    assert len(set(cells["url"])) == 3
    black = base64.b64decode(cells["url"][0].removeprefix("data:image/png;base64,"))
    assert black == png((x[0].view(4, 5).numpy().astype(float) + 1) / 2)
    text = to_svg(chart)
    assert "1 to 7" in text
    # what is read aloud is not the file
    assert text.count("<image") == text.count("data:image/png") == 6
    assert "taught, 1 to 7" in text
    assert save(chart, tmp_path / "grid.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"images": {}}, "there are no images"),
        (
            {"images": {"a": torch.zeros(2, 784), "b": torch.zeros(3, 784)}},
            "same number.* got {'a': 2, 'b': 3}",
        ),
        (
            {"images": {"a": torch.zeros(2, 10)}},
            r"images of 'a' have shape \(2, 10\), expected \(n, 28, 28\) or flat",
        ),
        ({"images": {"a": torch.zeros(2, 784)}, "titles": ["x"]}, "each of 2 columns, got 1"),
        (
            {"images": {"a": torch.zeros(2, 784)}, "limits": (1, 0)},
            r"a lower and a higher value, got \(1, 0\)",
        ),
    ],
)
def test_images_that_do_not_fit_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(hf.HoldfastError, match=words):
        image_grid(**given)
