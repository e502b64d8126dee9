"""The bench of DeDUCE: what is reported, how failures and means are counted, promises, and what was committed."""

import json
import zlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.hoeltgen2021 import experiment as hoeltgen2021
from experiments.hoeltgen2021 import reported as reported
from experiments.hoeltgen2021 import setup as hoeltgen2021_parts
from experiments.hoeltgen2021.checks import again, kept, promises
from experiments.hoeltgen2021.page import brief
from experiments.hoeltgen2021.pictures import FAILED, board, names, stored
from experiments.hoeltgen2021.reported import METHODS
from experiments.hoeltgen2021.setup import ABLATION, SETTINGS, prepare, questions, shown, tuned
from experiments.hoeltgen2021.tables import LOOSE, Outcome, both_ways, by_target, findings, over_sets, spread, succeeded
from experiments.run import run_paper, write_page
from holdfast.errors import HoldfastError
from holdfast.images.anogan.wgan import WGAN
from holdfast.images.autoencoders import ConvVAE
from holdfast.images.classifier import SpectralResNet
from holdfast.images.deduce import DeDUCE
from holdfast.images.greedy import GreedyPixels
from holdfast.images.jsma import JSMA
from holdfast.images.model import ImageModel
from holdfast.target import Status

ROOT = Path(__file__).parents[2]
RESULTS = {p.stem: json.loads(p.read_text()) for p in (ROOT / "experiments/results/hoeltgen2021").glob("*.json")}


# ---- what is reported


def test_figures_of_the_sets_give_the_first_table() -> None:
    for name, values in reported.BY_SET.items():
        mean, sd = reported.TABLE_1["DeDUCE"][name]
        assert np.mean(values) == pytest.approx(mean, abs=0.01)
        assert np.std(values, ddof=1) == pytest.approx(sd, abs=0.01)


def test_what_is_reported_fits_together() -> None:
    assert set(reported.TABLE_1) == set(reported.TABLE_2) == set(reported.TABLE_3) == set(METHODS)
    assert set(reported.TABLE_4) == set(ABLATION)
    # every class is wanted about as often as any other, so the mean over classes is that over pairs
    assert np.mean(reported.BY_TARGET) == pytest.approx(reported.ALL_PAIRS["L0"][0], abs=0.1)
    assert sum(reported.COMMON) / 4500 == pytest.approx(0.72, abs=0.005)
    failed = 100 * (1 - reported.BOTH_PAIRS / 4500)  # of JSMA, since DeDUCE never fails
    assert failed == pytest.approx(reported.TABLE_1["JSMA"]["failure %"][0], abs=0.01)
    for values in reported.ALL_PAIRS.values():
        assert list(values[2:]) == sorted(values[2:])
    for name in ("L0", "L1"):  # the easy pairs are those that all four solve
        assert reported.TABLE_1["DeDUCE"][name][0] < reported.BOTH["DeDUCE"][name] < reported.ALL_PAIRS[name][0]
    assert {step for _, step in reported.TABLE_5} == set(reported.STEP_LIMITS)
    best = min(reported.TABLE_4, key=lambda label: reported.TABLE_4[label][0])
    assert best == "momentum 0.6"
    for cells in reported.TABLE_3.values():
        assert len(cells) == len(reported.PAIRS_3)


# ---- figures by hand


def outcome(ok: list[list[int]], l0: list[list[float]]) -> Outcome:
    return Outcome(np.array(ok, bool), {"L0": np.array(l0, float)})


def test_costs_of_an_answer() -> None:
    x = np.array([[[0.0, 0.5, 1.0, 0.2], [0.0, 0.0, 0.0, 0.0]]])
    x_cf = np.array([[[0.2, 0.5, 0.0, 0.20001], [0.0, 0.0, 0.0, 0.0]]])
    found = Outcome.of(x, x_cf, np.ones((1, 2), bool), iterations=np.array([[9, 0]])).figures
    assert found["L0"].tolist() == [[3, 0]]
    assert found[LOOSE].tolist() == [[2, 0]]
    assert found["L1"].tolist() == [[pytest.approx(1.20001), 0]]
    assert found["iterations"].tolist() == [[9, 0]]


def test_what_is_met_after_the_last_iteration_is_a_failure_of_greedy_methods() -> None:
    codes = np.array([Status.FOUND, Status.FOUND, Status.NOT_FOUND, Status.NOT_FOUND, Status.ALREADY_MET])
    iterations = np.array([699, 700, 700, 12, 0])  # the fourth had nothing left to change
    assert succeeded(codes, iterations, 700).tolist() == [True, False, False, False, True]
    assert succeeded(codes, iterations, None).tolist() == [True, True, False, False, True]
    assert succeeded(codes[4:], iterations[4:], 0).tolist() == [True]


def test_means_within_sets_then_over_sets() -> None:
    values, counted = np.array([[1.0, 3.0, 99.0], [4.0, 99.0, 99.0]]), np.array([[1, 1, 0], [1, 0, 0]], bool)
    assert over_sets(values, counted) == [3.0, pytest.approx(2**0.5, abs=1e-4)]  # means 2 and 4; n - 1 below
    assert over_sets(values[:1], counted[:1]) == [2.0, None]
    assert over_sets(values, np.zeros_like(counted)) == [None, None]
    assert over_sets(values, counted & np.array([[True], [False]])) == [2.0, None]


def test_a_condition_keeps_the_pairs_that_all_solve() -> None:
    a = outcome([[1, 1, 1, 0], [1, 1, 1, 1]], [[1, 2, 3, 50], [1, 1, 1, 1]])
    b = outcome([[1, 0, 1, 1], [1, 1, 1, 1]], [[10, 90, 30, 10], [20, 20, 20, 20]])
    found = both_ways({"a": a, "b": b})
    assert found["conditioned"]["a"] == {"L0": [1.5, 0.7071], "failure %": [12.5, 17.6777], "pairs": 6}
    assert found["conditioned"]["b"]["L0"] == [20.0, 0.0]
    assert found["unconditioned"]["a"]["L0"] == [1.5, 0.7071]  # (1 + 2 + 3) / 3 and 1
    assert found["unconditioned"]["b"]["L0"] == [pytest.approx((50 / 3 + 20) / 2, abs=1e-4), pytest.approx(2.357)]
    assert found["unconditioned"]["b"]["pairs"] == 7
    assert a.at(np.array([0, 3])).of_found("L0").tolist() == [1, 1, 1]


def test_quantiles_and_classes() -> None:
    assert spread(np.arange(101.0)) == [50.0, pytest.approx(29.1548), 5.0, 25.0, 50.0, 75.0, 95.0]
    assert spread(np.zeros(0)) == [None] * 7
    o = outcome([[1, 1, 0, 1]], [[1, 3, 100, 8]])
    assert by_target(o, np.array([[0, 0, 0, 2]]), 3) == [2.0, None, 8.0]


def test_pairs_are_asked_about_as_in_the_paper() -> None:
    asked = questions(SETTINGS["mnist"], 5, 100)
    assert len({i for k in range(5) for i in asked[f"DeDUCE spectral {k}"].images}) == 500
    assert asked["JSMA plain 4"].images == tuple(range(400, 500))
    assert sum(len(asked[f"VLK plain {k}"].images) for k in range(5)) * 9 == 270
    assert {i for i, _ in SETTINGS["mnist"].shown} == set(asked["REVISE spectral 0"].images)
    assert asked["mu = 1/5"].options == {"mu": 0.2, "momentum": 0.0}
    assert len(asked["lambda = 1e5"].images) * 9 == 450
    assert asked[tuned(0.1, 1e-4)].options["optimizer"] == "sgd"
    assert len(asked) == 5 * 7 + 13 + 6
    some = questions(SETTINGS["mnist"], 2, 7)  # fewer images of fewer sets, at the same places
    assert some["DeDUCE spectral 1"].images == tuple(range(100, 107))
    assert some["VLK plain 1"].images == (101, 103, 104, 106)


# ---- findings


def result() -> dict[str, Any]:
    """Where every finding holds."""
    figures = {"DeDUCE": (20.0, 10.0), "JSMA": (25.0, 12.0), "VLK": (150.0, 40.0), "REVISE": (750.0, 60.0)}
    rows = {m: {"L0": [a, 1.0], "L1": [b, 0.5], "failure %": [0.5, 0.1], "pairs": 9} for m, (a, b) in figures.items()}
    table = {"conditioned": rows, "unconditioned": rows}
    table = json.loads(json.dumps({w: {"all pairs": table, "common pairs": table} for w in ("same", "mixed")}))
    ablation = {label: {"L0": [24.0 + ("lambda" in label)], "L1": [12.0]} for label in ABLATION}
    accuracy = {"spectral": {"test": 0.99}, "plain": {"test": 0.99}}
    return {"table 1": table, "table 4": {"conditioned": ablation}, "accuracy": accuracy}


def failed(r: dict[str, Any]) -> list[str]:
    return [line["finding"] for line in findings(r) if not line["holds"]]


def test_what_holds_is_said_to_hold() -> None:
    assert failed(result()) == []
    assert len(findings(result())) == 4 + 2 + 2 * 4 + 2


@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (("accuracy", "spectral", "test"), 0.984, "Accuracy"),
        (("table 1", "same", "all pairs", "unconditioned", "DeDUCE", "failure %", 0), 1.0, "Failures"),
        (("table 1", "same", "all pairs", "unconditioned", "DeDUCE", "L0", 0), 25.1, "Mean L0"),
        (("table 1", "same", "all pairs", "unconditioned", "DeDUCE", "L1", 0), None, "Mean L1"),
        (("table 1", "same", "all pairs", "conditioned", "JSMA", "L0", 0), 20.0, "L0 of DeDUCE below JSMA"),
        (("table 1", "mixed", "common pairs", "conditioned", "VLK", "L1", 0), 29.0, "L1 of VLK at least 3.00 times"),
        (("table 1", "same", "common pairs", "conditioned", "REVISE", "L0", 0), 711.0, "L0 of REVISE at least 35.56"),
        (("table 4", "conditioned", "lambda = 1e3", "L1", 0), 11.9, "L1 with mu = 1"),
    ],
)
def test_what_fails_is_said_to_fail(where: tuple[Any, ...], value: float | None, told: str) -> None:
    r = result()
    place: Any = r
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    (only,) = failed(r)
    assert only.startswith(told)


# ---- promises


@dataclass(frozen=True)
class Searched:
    """Methods that were asked about some digits, and what they answered."""

    model: ImageModel
    methods: tuple[GreedyPixels, ...]
    x: torch.Tensor
    cells: tuple[dict[str, Any], ...]

    def cell(self, i: int = 0) -> dict[str, Any]:
        """Answers of a method, to be spoilt."""
        return {key: value.copy() for key, value in self.cells[i].items()}


@pytest.fixture(scope="module")
def searched() -> Searched:
    task = prepare("digits")
    model = SpectralResNet(width=4, epochs=4, batch_size=64).fit(task.train[:600], task.y[:600]).model_
    methods = DeDUCE(max_iter=60).fit(model, task.train[:600], task.y[:600]), JSMA(max_iter=60)
    answers = [method.explain(model, task.test[:2], "all", labels=task.test_y[:2]) for method in methods]
    cells = tuple(
        {"x_cf": a.x_cf.numpy(), "target": a.goal.label.numpy(), "codes": a.status_codes, "iterations": a.iterations,
         "touched": np.array(False)} for a in answers
    )  # fmt: skip
    return Searched(model, methods, answers[0].x, cells)


def test_answers_keep_all_promises(searched: Searched) -> None:
    for method, cell in zip(searched.methods, searched.cells, strict=True):
        assert (cell["codes"] == Status.FOUND).sum() >= 5
        counts = promises(method, searched.model, searched.x, cell)
        assert set(counts.values()) == {0}, counts
        elsewhere, took = again(method, searched.model, searched.x, cell, np.array([0, 5, 17]))
        assert set(elsewhere.values()) == {0}, elsewhere
        assert took.shape == (3,)
        kept({"a": counts, "b": elsewhere})


def spoilt(promise: str, cell: dict[str, Any], x: torch.Tensor, at: int) -> GreedyPixels:
    """Break a promise to a pair that was answered; returns the settings it is held to."""
    before, after = x[at].flatten().numpy(), cell["x_cf"][at].reshape(-1)
    first = int(np.flatnonzero(after != before)[0])
    if promise == "limit per pixel":
        after[first] = 0.6 if before[first] < 0.5 else 0.4
        return DeDUCE(limit=1, delta=0.05)
    if promise == "bounds":
        after[first] = np.nan
    elif promise == "multiples of delta":
        after[first] += 0.05 if after[first] < 0.5 else -0.05
    elif promise == "L0 at most iterations":
        cell["iterations"][at] = 0
    elif promise == "steps at most iterations":
        cell["iterations"][at] = (after != before).sum()
        return DeDUCE(delta=0.01, limit=100)
    elif promise == "met where found":
        cell["x_cf"][at] = x[at].numpy()
    elif promise == "not met where not found":
        cell["codes"][at] = Status.NOT_FOUND
    elif promise == "nothing to do, nothing done":
        cell["codes"][at] = Status.ALREADY_MET
    else:
        cell["touched"] = np.array(True)
    return DeDUCE()


@pytest.mark.parametrize(
    "promise",
    ["limit per pixel", "bounds", "multiples of delta", "L0 at most iterations", "steps at most iterations",
     "met where found", "not met where not found", "nothing to do, nothing done", "caller's images untouched"],
)  # fmt: skip
def test_each_broken_promise_is_counted(promise: str, searched: Searched) -> None:
    cell = searched.cell()
    at = int(np.flatnonzero(cell["codes"] == Status.FOUND)[0])
    method = spoilt(promise, cell, searched.x, at)
    counts = promises(method, searched.model, searched.x, cell)
    assert counts[promise] >= 1
    assert promises(DeDUCE(), searched.model, searched.x, searched.cell())[promise] == 0
    with pytest.raises(HoldfastError, match=f"DeDUCE 0: {promise}"):
        kept({"DeDUCE 0": {promise: counts[promise]}, "JSMA 0": {promise: 0}})


def test_another_answer_in_other_company_is_counted(searched: Searched) -> None:
    cell = searched.cell()
    at = np.flatnonzero((cell["codes"] == Status.FOUND) & (cell["iterations"] > 3))[:2]
    cell["iterations"][at[0]] += 1
    cell["x_cf"][at[1]] += np.float32(1e-6)
    counts, _ = again(searched.methods[0], searched.model, searched.x, cell, at)
    others = ("alone", "another chunk", "without compaction", "without the shortcut")
    assert counts == {**dict.fromkeys(others, 2), "not met one iteration earlier": 1}


# ---- pictures


def test_a_board_shows_every_image_to_the_pixel() -> None:
    images = np.linspace(0, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
    told = [["", "5 pixels", FAILED], ["", "1 pixels", "2 pixels"]]
    kept_ = stored(["4 → 9", "a very long name that has no room at all"], ["original", "DeDUCE", "JSMA"], images, told)
    assert json.loads(json.dumps(kept_)) == kept_
    picture = board(kept_)
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    lines = unpacked(picture)
    for grey in np.round(255 * images).astype(np.uint8).reshape(-1):
        assert (lines == grey).all(2).any()


def unpacked(picture: bytes) -> Any:
    """Pixels of a PNG file whose lines have no filter."""
    width, height = (int.from_bytes(picture[i : i + 4]) for i in (16, 20))
    at = picture.index(b"IDAT")
    data = zlib.decompress(picture[at + 4 : at + 4 + int.from_bytes(picture[at - 4 : at])])
    return np.frombuffer(data, np.uint8).reshape(height, -1)[:, 1:].reshape(height, width, 3)


# ---- a small run


@pytest.fixture
def brief_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few images, small networks, hardly any training."""
    monkeypatch.setattr(hoeltgen2021, "WORKERS", 1)
    short = {"epochs": 2, "width": 4, "batch_size": 64}
    small = replace(
        SETTINGS["digits"], images=4, common=(1, 3), again=3, alone=2, ablation=1, tuning=1, limits=(5, 5, 5),
        spectral=short | {"coefficient": 4.0}, plain=short, autoencoder={"epochs": 1}, vae={"epochs": 1, "latent": 4},
        gan={"updates": 3, "width": 4, "latent": 4}, vlk={"steps": 5, "bisections": 2}, judged=4, compared=20,
        revise={"lam": 1.0, "optimizer": "adam", "step": 0.1, "max_iter": 5}, anogan={"steps": 3, "restarts": 2},
    )  # fmt: skip
    monkeypatch.setitem(SETTINGS, "digits", small)
    for method in ("DeDUCE", "JSMA"):
        shorter = partial(getattr(hoeltgen2021_parts, method), max_iter=20)
        monkeypatch.setattr(hoeltgen2021_parts, method, shorter)


def test_a_small_run_end_to_end(brief_run: None, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"out": tmp_path / "out", "work": tmp_path / "work", "models": 2}
    (found,) = run_paper("hoeltgen2021", ["digits"], **settings)
    assert found["pairs"] == {"all": 72, "common": 36, "sets": 2, "images": 4, "common images": [1, 3, 5, 7]}
    for what in ("same", "mixed"):
        assert list(found["table 1"][what]["common pairs"]["conditioned"]) == list(METHODS)
        assert list(found["table 1"][what]["all pairs"]["unconditioned"]) == ["DeDUCE", "JSMA"]
        assert [i for i, _, _ in found["table 3"][what]["pairs"]] == [1, 3]
    rows = found["table 1"]["same"]["common pairs"]["unconditioned"]
    assert {"AGAN", "L0", LOOSE, "L1", "failure %", "pairs"} <= set(rows["VLK"])
    assert list(found["table 4"]["unconditioned"]) == list(ABLATION)
    assert len(found["table 5"]["unconditioned"]) == len(reported.TABLE_5)
    assert {len(values) for values in found["by target"].values()} == {10}
    assert set(found["auroc"]) == {"anogan", "reconstruction", "log_density"}
    assert not any(n for counts in found["promises"].values() for n in counts.values())
    assert len(found["promises"]) == 2 * 3 + len(ABLATION) + 7
    assert found["findings"] == findings(found)
    written = tmp_path / "out/hoeltgen2021"
    assert json.loads((written / "digits.json").read_text(), parse_constant=pytest.fail) == found
    page = (written / "README.md").read_text()
    assert all(line["finding"] in page for line in found["findings"])
    assert {p.stem for p in written.glob("*.png")} == set(names([found]))
    assert len(names([found])) == 3
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}
    assert len(stamps) == 5 + 2 + len(questions(SETTINGS["digits"], 2, 4)) + 1 + 7 + 9
    (again_,) = run_paper("hoeltgen2021", ["digits"], **settings)  # everything is there
    assert {k: v for k, v in again_.items() if k != "seconds"} == {k: v for k, v in found.items() if k != "seconds"}
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.npz")}


def test_a_broken_promise_ends_the_run(brief_run: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hoeltgen2021, "promises", lambda *_: {"bounds": 2})
    monkeypatch.setattr(hoeltgen2021, "in_other_company", no_repeats)
    with pytest.raises(HoldfastError, match=r"DeDUCE spectral 0: bounds \(2\)"):
        run_paper("hoeltgen2021", ["digits"], out=tmp_path / "out", work=tmp_path / "work", models=1, rows=2)
    assert not (tmp_path / "out").exists()


def no_repeats(*_: Any) -> Any:
    return {"names": np.zeros(0, str), "counts": np.zeros(0), "took": np.zeros(1)}


def test_the_digits_of_the_quick_run_are_apart() -> None:
    task = prepare("digits")
    assert [len(x) for x in (task.train, task.validation, task.test)] == [1200, 298, 299]
    setting = SETTINGS["digits"]
    assert setting.images * hoeltgen2021.SETS <= len(task.test)
    assert all(task.test_y[i] != t for i, t in shown(setting, task))


@pytest.mark.data
def test_images_are_those_of_the_paper(data_dir: Path) -> None:
    task = prepare("mnist")
    assert [len(x) for x in (task.train, task.validation, task.test)] == [50_000, 10_000, 10_000]
    assert [int(task.test_y[i]) for i, _ in reported.PAIRS_3] == [4, 0, 9, 2, 4, 5]
    assert set(task.strange) == set(reported.AUROC)


# ---- the committed results


def test_the_committed_page_is_what_the_results_say(tmp_path: Path) -> None:
    assert set(RESULTS) <= {"mnist"}
    for name, found in RESULTS.items():
        (tmp_path / "hoeltgen2021").mkdir()
        (tmp_path / f"hoeltgen2021/{name}.json").write_text(json.dumps(found))
        page = write_page("hoeltgen2021", tmp_path)
        committed = ROOT / "experiments/results/hoeltgen2021"
        assert page.read_text() == (committed / "README.md").read_text()
        for picture in page.parent.glob("*.png"):
            ours, theirs = (unpacked(p.read_bytes()) for p in (picture, committed / picture.name))
            assert np.array_equal(ours, theirs)
            assert picture.stat().st_size < 300_000


def test_the_committed_findings_are_those_of_the_figures() -> None:
    for found in RESULTS.values():
        assert found["findings"] == findings(found)
        assert found["models"] == hoeltgen2021.MODELS
        assert found["pairs"]["all"] == 4500
        assert found["pairs"]["common"] == 270
        assert not any(n for counts in found["promises"].values() for n in counts.values())


def test_the_site_has_the_committed_figures() -> None:
    text = (ROOT / "docs/reproductions/index.md").read_text()
    for found in RESULTS.values():
        for row in brief(found):
            assert f"| {' | '.join(row)} |" in text


def test_the_site_sets_like_beside_like() -> None:
    """What the paper reports is of a network of its own for DeDUCE and another for the rest."""
    rows = brief(RESULTS["mnist"])
    assert [row[1] for row in rows] == [f"`{m}`" for m in (*METHODS, *METHODS)]
    for what, part in (("mixed", rows[:4]), ("same", rows[4:])):
        found = RESULTS["mnist"]["table 1"][what]["common pairs"]["conditioned"]
        for m, row in zip(METHODS, part, strict=True):
            assert row[2].split()[0] == f"{found[m]['L0'][0]:.2f}"
            assert all(("(" in cell) == (what == "mixed") for cell in row[2:])


def test_the_page_names_every_option_that_is_not_the_librarys() -> None:
    page = (ROOT / "experiments/results/hoeltgen2021/README.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("Accuracy on test images")]
    how = RESULTS["mnist"]["settings"]
    for kind in ("spectral", "plain", "autoencoder", "vae", "gan", "vlk", "revise", "anogan"):
        for option, value in how[kind].items():
            assert f"{option} {value}" in line
    assert f"updates {how['gan']['updates']} ({WGAN().updates})" in line
    assert f"epochs {how['vae']['epochs']} ({ConvVAE().epochs})" in line
