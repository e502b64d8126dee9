"""The study of what hardening costs: definitions by hand on linear models, bounds, the
recommendation, the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast as hf
from holdfast.evaluation.hardened_answers import invalidated
from holdfast.evaluation.tradeoff import Tradeoff
from holdfast.nn.stack import Stack
from holdfast.render.charts.tradeoff import bounds_chart
from holdfast.target import Status
from holdfast.training.adversarial import AdversarialModels

G = torch.Generator().manual_seed(0)
ROWS = torch.rand(300, 4, generator=G)
TABLE = pd.DataFrame(ROWS.numpy().astype(np.float64), columns=list("abcd"))
Y = pd.Series(np.where((ROWS @ torch.tensor([3.0, -2.0, 1.0, 0.2]) > 1.1).numpy(), "yes", "no"))
SCHEMA = hf.Schema.infer(TABLE, scaling="minmax")
EPS = (0.0, 0.1, 0.3)
LAM = 0.1


@pytest.fixture(scope="module")
def hardened() -> AdversarialModels:
    return hf.train_adversarial(
        hf.Recipe(hidden=(), epochs=60, lr=0.05), TABLE, Y, SCHEMA, epsilon=EPS, seeds=2
    )


@pytest.fixture(scope="module")
def study(hardened: AdversarialModels) -> Tradeoff:
    methods = [hf.Descent.scfe(lam=LAM), hf.NearestNeighbor(), hf.Descent.scfe(lam=1.0)]
    return hf.tradeoff(hardened, TABLE.iloc[:60], methods, test=(TABLE.iloc[200:], Y.iloc[200:]))


def weights(hardened: AdversarialModels) -> tuple[torch.Tensor, torch.Tensor]:
    """(epsilons, seeds, d) and (epsilons, seeds) of the score of 'yes' less that of 'no'."""
    layers = list[tuple[torch.Tensor, torch.Tensor]]()
    for group in hardened.bank.groups:
        assert isinstance(group.networks, Stack)
        layers.append(group.networks.layers[0])
    w = torch.stack([(w[:, :, 1] - w[:, :, 0]).double() for w, _ in layers])
    return w, torch.stack([(b[:, 0, 1] - b[:, 0, 0]).double() for _, b in layers])


def test_validity_and_cost_are_those_of_the_closed_form_where_the_range_does_not_bind(
    hardened: AdversarialModels, study: Tradeoff
) -> None:
    x = SCHEMA.encode(TABLE.iloc[:60], torch.float64)
    w, b = weights(hardened)
    for i in range(len(EPS)):
        for s in range(2):
            cfs = study.answers["Descent"][i][s]
            f = x @ w[i, s] + b[i, s]
            plain = x @ w[0, s] + b[0, s]
            way = torch.where(plain > 0, -1.0, 1.0).double()  # away from what the plain model says
            gap = way * f
            assert (torch.tensor(cfs.status_codes == Status.ALREADY_MET) == (gap > 0)).all()
            m = 1.0 - gap
            a2 = w[i, s].square().sum()
            step = (m / (LAM + a2) * way)[:, None] * w[i, s]
            inside = ((x + step >= -1e-9) & (x + step <= 1 + 1e-9)).all(1) & (gap <= 0)
            ends = gap + m * a2 / (LAM + a2)
            clear = inside & (ends.abs() > 1e-4)
            assert (torch.tensor(cfs.found)[clear] == (ends > 0)[clear]).all()
            costs = torch.tensor(cfs.cost("l2").to_numpy())
            there = clear & torch.tensor(cfs.found)
            torch.testing.assert_close(
                costs[there], step[there].square().sum(1).sqrt(), rtol=1e-3, atol=1e-4
            )
    assert bool(inside.any())


def test_the_table_holds_means_by_hand(study: Tradeoff) -> None:
    rows = study.rows()
    table = study.table()
    assert list(table["method"].unique()) == ["Descent", "NearestNeighbor", "Descent 2"]
    for name in study.methods:
        for i, e in enumerate(EPS):
            line = table[(table["method"] == name) & (table["epsilon"] == e)].iloc[0]
            parts = study.answers[name][i]
            asked = sum(int((c.status_codes != Status.ALREADY_MET).sum()) for c in parts)
            found = sum(int(c.found.sum()) for c in parts)
            assert line["asked"] == asked
            assert line["validity"] == pytest.approx(found / asked)
            costs = np.concatenate([c.cost("l2").to_numpy()[c.found] for c in parts])
            assert line["cost"] == pytest.approx(costs.mean())
            both = list[float]()
            for s, (mine, plain) in enumerate(zip(parts, study.answers[name][0], strict=True)):
                pair = mine.found & plain.found
                both += (mine.cost("l2").to_numpy() - plain.cost("l2").to_numpy())[pair].tolist()
                assert len(
                    rows[(rows["method"] == name) & (rows["epsilon"] == e) & (rows["seed"] == s)]
                ) == int((mine.status_codes != Status.ALREADY_MET).sum())
            assert line["pairs"] == len(both)
            assert line["extra cost"] == pytest.approx(np.mean(both))
    plain = table[table["epsilon"] == 0.0]
    assert (plain["extra cost"] == 0).all()
    assert table["accuracy"].tolist() == pytest.approx(np.tile(study.accuracy.mean(1), 3).tolist())


def test_survival_is_judged_by_the_other_seeds(study: Tradeoff) -> None:
    name = "NearestNeighbor"
    for i, e in enumerate(EPS):
        shares = list[bool]()
        for s in range(2):
            cfs = study.answers[name][i][s]
            other = study.hardened.model(e, 1 - s)
            said = other.predict(cfs.after)
            wanted = np.array(cfs.classes, dtype=object)[cfs.goal.label.numpy()]
            shares += (said.to_numpy() == wanted)[cfs.found].tolist()
        assert study.survives(name)[i] == pytest.approx(np.mean(shares))
    alone = replace(study.hardened, bank=study.hardened.only(range(1)))
    assert np.isnan(replace(study.made, hardened=alone).survives(name)).all()


def test_crossing_has_the_validity_of_the_first_seed_on_its_diagonal(study: Tradeoff) -> None:
    crossing = study.cross_validity("NearestNeighbor")
    first = [by_seed[0] for by_seed in study.answers["NearestNeighbor"]]
    expected = [c.found.sum() / (c.status_codes != Status.ALREADY_MET).sum() for c in first]
    assert np.diagonal(crossing.matrix).tolist() == pytest.approx(expected)
    with pytest.raises(hf.HoldfastError, match="no method 'SCFE' in this study"):
        study.cross_validity("SCFE")


def test_corrected_bounds_hold_and_differences_are_closed_forms(
    hardened: AdversarialModels, study: Tradeoff
) -> None:
    bounds = study.bounds()
    assert set(bounds["method"]) == {"Descent", "Descent 2"}
    assert not bounds["violated"].any()
    assert len(bounds) > 50
    w, b = weights(hardened)
    x = SCHEMA.encode(TABLE.iloc[:60], torch.float64)
    line = bounds[
        (bounds["method"] == "Descent 2") & (bounds["epsilon"] == 0.3) & (bounds["seed"] == 1)
    ].iloc[0]
    row = int(line["row"])
    gaps = [float(x[row] @ w[i, 1] + b[i, 1]) for i in (0, 2)]
    way = -np.sign(gaps[0])
    lengths = [float(w[i, 1].square().sum().sqrt()) for i in (0, 2)]
    steps = [abs(1 - way * g) * a / (1 + a * a) for g, a in zip(gaps, lengths, strict=True)]
    assert line["difference"] == pytest.approx(steps[1] - steps[0], rel=1e-4)
    assert line["bound"] == pytest.approx(steps[1] + steps[0], rel=1e-4)
    assert line["paper"] == pytest.approx(1 / lengths[0] + 1 / lengths[1], rel=1e-4)
    assert bounds_chart(bounds.assign(case=bounds["epsilon"])).to_dict()["height"] == 300
    none = replace(study.made, methods={"NearestNeighbor": study.made.methods["NearestNeighbor"]})
    with pytest.raises(hf.HoldfastError, match="no method of this study has a bound"):
        none.bounds()


def test_noise_invalidates_what_lies_near_the_boundary(
    hardened: AdversarialModels, study: Tradeoff
) -> None:
    cfs = study.answers["Descent"][0][0]
    w, b = weights(hardened)
    rate = invalidated(hardened.model(0.0), cfs, 0.1, 4000, 0)
    z = cfs.x_cf.double()[torch.tensor(cfs.found)]
    way = torch.where(cfs.goal.label == 1, 1.0, -1.0).double()[torch.tensor(cfs.found)]
    lead = way * (z @ w[0, 0] + b[0, 0]) / (0.1 * w[0, 0].square().sum().sqrt())
    expected = torch.special.ndtr(-lead).numpy()
    assert np.abs(rate - expected).max() < 0.04  # five standard errors
    assert study.under_noise("Descent", draws=50)[0] == pytest.approx(expected.mean(), abs=0.05)
    with pytest.raises(hf.HoldfastError, match="sd > 0"):
        invalidated(hardened.model(0.0), cfs, 0.0, 1, 0)


def test_the_recommendation_follows_its_limits(study: Tradeoff) -> None:
    assert (
        study.recommended(validity=1.0, cost=1e9, accuracy=1.0)
        == EPS[int(study.attacked.mean(1).argmax())]
    )
    assert study.recommended(validity=-1.0) == 0.0
    assert study.recommended(cost=-1.0) == 0.0
    words = study.summary()
    assert f"epsilon {study.recommended():g}" in words
    assert words in repr(study)
    content = json.loads(study.to_json())
    assert content["recommended"] == study.recommended()
    assert len(content["table"]) == len(study.table())
    assert content["accuracy measured on"] == "test"


def test_a_file_keeps_the_figures_and_no_models(study: Tradeoff, tmp_path: Path) -> None:
    study.save(tmp_path / "study.parquet")
    again = Tradeoff.load(tmp_path / "study.parquet")
    pd.testing.assert_frame_equal(again.rows(), study.rows())
    assert again.survives("Descent 2").tolist() == study.survives("Descent 2").tolist()
    assert repr(again) == repr(study)
    for ask in (again.bounds, lambda: again.under_noise("Descent"), lambda: again.answers):
        with pytest.raises(hf.HoldfastError, match="keeps figures and no models"):
            ask()
    with pytest.raises(hf.HoldfastError, match="no method 'SCFE' in this study"):
        again.survives("SCFE")
    study.save(tmp_path / "study.csv")
    assert len(pd.read_csv(tmp_path / "study.csv")) == len(study.table())
    with pytest.raises(hf.HoldfastError, match=r"must be one of '\.parquet', '\.json', '\.csv'"):
        study.save(tmp_path / "study.txt")
    hf.evaluate(study.answers["Descent"][0][0]).save(tmp_path / "report.parquet")
    with pytest.raises(hf.HoldfastError, match="holds a Report, not a Tradeoff"):
        Tradeoff.load(tmp_path / "report.parquet")
    with pytest.raises(hf.HoldfastError, match="no file at"):
        Tradeoff.load(tmp_path / "nothing.parquet")
    study.rows().to_parquet(tmp_path / "plain.parquet")
    with pytest.raises(hf.HoldfastError, match=r"was not written by Tradeoff\.save"):
        Tradeoff.load(tmp_path / "plain.parquet")
    study.save(tmp_path / "study.json")
    with pytest.raises(hf.HoldfastError, match=r"Tradeoff\.save writes a \.parquet file"):
        Tradeoff.load(tmp_path / "study.json")


def test_pictures(study: Tradeoff) -> None:
    chart = study.plot().to_dict()
    assert len(chart["vconcat"]) == 3


def test_wishes(hardened: AdversarialModels) -> None:
    said = np.stack([hardened.model(0.0, s).predict(TABLE).to_numpy() for s in range(2)])
    assert (hardened.wanted_classes(TABLE) != said).all()
    assert set(hardened.wanted_classes(TABLE, "yes").ravel()) == {"yes"}
    with pytest.raises(hf.HoldfastError, match="no class 'maybe'"):
        hardened.wanted_classes(TABLE, "maybe")
    three = pd.Series(np.resize(["a", "b", "c"], len(TABLE)))
    many = hf.train_adversarial(hf.Recipe(hidden=(), epochs=1), TABLE, three, SCHEMA, epsilon=[0])
    with pytest.raises(hf.HoldfastError, match="say which of the classes"):
        many.wanted_classes(TABLE)


def test_errors_name_the_thing(hardened: AdversarialModels) -> None:
    for methods in ([], ["Descent"], {}):
        with pytest.raises(hf.HoldfastError, match="methods must be explainers"):
            hf.tradeoff(hardened, TABLE, methods)
    with pytest.raises(hf.HoldfastError, match=r"takes what hf\.train_adversarial"):
        hf.tradeoff(hardened.bank, TABLE, [hf.Descent()])


# ---- the command
