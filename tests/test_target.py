import math

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast as hf
from holdfast.errors import TargetError
from holdfast.nn.architecture import mlp
from holdfast.target import BoundTarget, IntervalTarget, Status
from support.tables import seeded

S = torch.tensor([[1.0, 3.0, 2.0], [0.5, 0.0, -1.0]])


def goal(
    label: list[int], sign: float = 1.0, margin: float = 0.0, soft: bool = False, k: int = 3
) -> BoundTarget:
    return BoundTarget(torch.tensor(label), sign, margin, soft, k)


def test_gap_by_hand() -> None:
    assert goal([2, 1]).gap(S).tolist() == [-1.0, -0.5]
    assert goal([1, 0]).gap(S).tolist() == [1.0, 0.5]
    assert goal([1, 0], sign=-1).gap(S).tolist() == [-1.0, -0.5]
    two = torch.tensor([[0.0, 1.5], [2.0, -1.0]])
    assert goal([1, 1], k=2).gap(two).tolist() == [1.5, -3.0]
    assert goal([0, 0], k=2).gap(two).tolist() == [-1.5, 3.0]
    assert goal([0, 0], sign=-1, k=2).gap(two).tolist() == [1.5, -3.0]


def test_soft_gap_is_the_log_odds() -> None:
    p = torch.softmax(S.double(), 1)
    expected = torch.log(p[:, 1] / (1 - p[:, 1]))
    assert torch.allclose(goal([1, 1], soft=True).gap(S.double()), expected)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("k", [2, 3])
def test_slope_is_the_derivative(soft: bool, sign: float, k: int) -> None:
    g = goal([1, 0], sign, 0.0, soft, k)
    scores = S[:, :k].double().requires_grad_()
    (expected,) = torch.autograd.grad(g.gap(scores).sum(), scores)
    assert torch.allclose(g.gap_and_slope(scores.detach())[1].double(), expected)


def test_met_needs_more_than_a_tie() -> None:
    tie = torch.tensor([[1.0, 1.0]])
    assert not goal([0], k=2).met(tie)
    assert not goal([1], k=2).met(tie)
    assert goal([1], margin=-0.1, k=2).met(tie)


def model(classes: list[object] | None = None, outputs: int = 3) -> hf.Model:
    return hf.Model.of(seeded(mlp(4, (5,), outputs)), hf.Schema.box(4), classes=classes)


def test_labels_of_every_form() -> None:
    m = model(["a", "b", "c"])
    now = torch.zeros(3, 3)
    assert hf.Target("b").bind(m, now).label.tolist() == [1, 1, 1]
    for many in (
        ["a", "c", "b"],
        np.array(["a", "c", "b"]),
        pd.Series(["a", "c", "b"], index=[7, 8, 9]),
    ):
        assert hf.Target.of(many).bind(m, now).label.tolist() == [0, 2, 1]
    assert hf.Target(torch.tensor([2, 0, 1])).bind(model(), now).label.tolist() == [2, 0, 1]
    assert hf.Target(np.int64(2)).bind(model(), now).label.tolist() == [2, 2, 2]
    other = hf.Target().bind(m, torch.tensor([[0.0, 2.0, 1.0]]))
    assert (other.label.tolist(), other.sign) == ([1], -1.0)


def test_wrong_targets_say_what_is_wrong() -> None:
    m = model(["approved", "denied", "open"])
    now = torch.zeros(2, 3)
    with pytest.raises(hf.HoldfastError, match="did you mean 'approved'"):
        hf.Target("aproved").bind(m, now)
    with pytest.raises(hf.HoldfastError, match="3 targets for 2 rows"):
        hf.Target(["open"] * 3).bind(m, now)
    with pytest.raises(hf.HoldfastError, match=r"pass classes="):
        hf.Target("approved").bind(model(), now)
    with pytest.raises(hf.HoldfastError, match="between 0 and 1"):
        hf.Target("open", probability=1.2)
    with pytest.raises(hf.HoldfastError, match="not both"):
        hf.Target("open", probability=0.7, margin=1.0)
    with pytest.raises(hf.HoldfastError, match="margin"):
        hf.Target("open", margin=math.nan)


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_probability_and_margin_are_reached(outputs: int) -> None:
    m = model(None, outputs)
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    likely = hf.MinCost().explain(m, x, hf.Target(1, probability=0.8))
    assert likely.found.sum() > 10
    assert (likely.probability[likely.found] > 0.8).all()
    if outputs < 3:  # the smallest change stops right there
        assert likely.probability[likely.found].max() < 0.85
    ahead = hf.MinCost().explain(m, x, hf.Target(1, margin=0.7))
    gap = ahead.goal.gap(ahead.scores).numpy()
    assert ahead.found.sum() > 5
    assert (gap[ahead.found] > 0.7).all()


def test_any_other_class() -> None:
    m = model(["a", "b", "c"])
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    frame = m.schema.decode(x)
    cfs = hf.MinCost().explain(m, frame)
    assert cfs.found.sum() > 20
    assert (m.predict(cfs.after)[cfs.found] != m.predict(frame)[cfs.found]).all()
    assert cfs.run.target == "any other class"


@pytest.mark.parametrize("probability", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("k", [3, 5])
def test_leaving_a_class_with_a_probability(k: int, probability: float) -> None:
    """From one half on the class is no longer the predicted one either, though the others together
    can be likelier."""
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    m = hf.Model.of(seeded(mlp(4, (6,), k)), hf.Schema.box(4))
    with m.eval_mode():
        own = m(x).argmax(1)
    for method in (
        hf.MinCost(),
        hf.Descent(),
        hf.Descent(loss="hinge"),
        hf.MinEpsilonPGD(radius=8.0),
        hf.GrowingSpheres(),
    ):
        cfs = method.explain(m, x, hf.Target(probability=probability))
        got = torch.tensor(cfs.status_codes != Status.NOT_FOUND)
        p = torch.softmax(cfs.scores.double(), 1)
        assert got.double().mean() > 0.4, type(method).__name__
        assert (1 - p[got, own[got]] > probability).all()
        assert torch.allclose(
            torch.tensor(cfs.probability.to_numpy()), 1 - p[torch.arange(40), own], atol=1e-6
        )
        assert probability < 0.5 or (cfs.scores.argmax(1) != own)[got].all()


def test_gap_and_slope_of_leaving_a_class_with_a_probability() -> None:
    g = goal([0, 0, 0], -1.0, 1.0, True)
    scores = torch.tensor([[1.0, 0.9, 0.9], [1.0, 1.2, 1.1], [0.0, 1.5, -9.0]], dtype=torch.float64)
    soft = torch.logsumexp(scores[:, 1:], 1) - scores[:, 0]
    hard = scores[:, 1:].amax(1) - scores[:, 0]
    assert torch.allclose(g.gap(scores), torch.minimum(soft, hard + 1))
    assert g.met(scores).tolist() == [False, False, True]
    scores.requires_grad_()
    (expected,) = torch.autograd.grad(g.gap(scores).sum(), scores)
    assert torch.allclose(g.gap_and_slope(scores.detach())[1], expected)
    assert not g.is_lead
    assert goal([0], 1.0, 1.0, True).is_lead
    assert goal([0], -1.0, -1.0, True).is_lead


def test_words() -> None:
    assert str(hf.Target("ok")) == "ok"
    assert str(hf.Target("ok", probability=0.7)) == "ok with probability 0.7"
    assert str(hf.Target("ok", margin=1)) == "ok by a margin of 1"
    assert str(hf.Target(["a", "b"])) == "one class per row"


@pytest.mark.parametrize(
    ("text", "classes", "label"),
    [
        ("yes", ("no", "yes"), "yes"),
        ("1", (0, 1), 1),
        ("1", (1, "1"), "1"),
        ("True", (True, False), True),
    ],
)
def test_a_class_is_found_by_its_name(
    text: str, classes: tuple[object, ...], label: object
) -> None:
    found = hf.Target.parse(text, classes)
    assert found.label == label
    assert type(found.label) is type(label)
    assert hf.Target.parse(text, classes, 0.7).probability == 0.7


@pytest.mark.parametrize(
    ("text", "interval"),
    [("200..250", (200, 250)), (" -1.5 .. ", (-1.5, math.inf)), ("..1e3", (-math.inf, 1000))],
)
def test_a_range_is_read(text: str, interval: tuple[float, float]) -> None:
    assert hf.Target.parse(text, ()).interval == interval


def test_what_cannot_be_read_says_what_is_expected() -> None:
    for text in ("250", "..", "", "a..b", "1...2..3"):
        with pytest.raises(TargetError, match=r"such as 200\.\.250, got"):
            hf.Target.parse(text, ())
    with pytest.raises(TargetError, match="swap its ends"):
        hf.Target.parse("3..2", ())
    with pytest.raises(TargetError, match="no probabilities"):
        hf.Target.parse("1..2", (), 0.5)
    with pytest.raises(TargetError, match="no class 'yess'; did you mean 'yes'"):
        hf.Target.parse("yess", ("no", "yes")).bind(model(["no", "yes"], 2), torch.zeros(1, 2))


def test_what_the_model_says_in_words() -> None:
    scores = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    assert goal([1, 0], k=2).describe(scores) == ["probability 0.50", "probability 0.12"]
    wide = IntervalTarget(torch.zeros(2, dtype=torch.int64), 1.0, 0.0, False, 1, 2e5, 2.5e5, 1e4)
    assert wide.describe(torch.tensor([[212000.4], [-0.2]])) == [
        "the estimate 212,000",
        "the estimate 0",
    ]
    narrow = IntervalTarget(torch.zeros(1, dtype=torch.int64), 1.0, 0.0, False, 1, 0.0, 0.1, 0.05)
    assert narrow.describe(torch.tensor([[0.123456]])) == ["the estimate 0.1235"]


def test_a_goal_asked_of_another_model_goes_by_its_own_threshold() -> None:
    scores = torch.tensor([[0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    goal = BoundTarget(torch.tensor([1, 1]), 1.0, math.log(0.7 / 0.3), True, 2)
    assert goal.met(scores).tolist() == [True, False]  # e / (1 + e) is 0.73

    class Threshold:
        offset = 0.0, 0.5
        defers_to_predict = False
        labels_only = False

    # Its scores are put right by the offset, its probability is what they were before: 0.62.
    assert goal.asked_of(Threshold()).met(scores).tolist() == [False, False]
    by_class = goal.by_class()
    assert (by_class.margin, by_class.soft) == (0.0, False)
    assert by_class.met(scores).tolist() == [True, False]
    Threshold.labels_only = True
    with pytest.raises(
        TargetError, match="gives no scores cannot be asked for a probability or a margin"
    ):
        goal.asked_of(Threshold())
    assert by_class.asked_of(Threshold()).met(scores).tolist() == [True, False]


@pytest.mark.parametrize("trees", [10, 100, 300])
def test_a_share_of_trees_that_is_just_what_was_asked_is_not_more(trees: int) -> None:
    share = torch.arange(1, trees, dtype=torch.float64) / trees
    scores = torch.stack([(1 - share).log(), share.log()], 1)
    for k in range(1, trees):
        goal = BoundTarget(
            torch.ones(trees - 1, dtype=torch.int64),
            1.0,
            math.log(k / trees / (1 - k / trees)),
            True,
            2,
        )
        assert goal.met(scores).tolist() == [j > k for j in range(1, trees)]
