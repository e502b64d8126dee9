"""The greedy pixel engine: against a plain loop over one pair, by hand, and its invariants."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast.errors import SettingError
from holdfast.images.deduce import DeDUCE
from holdfast.images.explainer import ImageSearchProblem
from holdfast.images.greedy import GreedyPixels, PixelSlots
from holdfast.images.jsma import JSMA
from holdfast.images.model import ImageModel
from holdfast.problem import TimeBudget
from holdfast.target import BoundTarget, Status
from support.images import Scripted, cnn, digits, linear


def plain_search(
    e: GreedyPixels, net: nn.Module, density: Any, image: Tensor, target: int, free: Tensor
) -> Any:
    """The algorithm as it is written down: one pair, one step after the other, Python numbers.

    Returns the image, and the number of steps.
    """
    x = image.clone().flatten()
    d = len(x)
    P = [0] * d
    M = [0.0] * d
    closed = [not f for f in free.flatten().tolist()]
    delta = torch.tensor(e.delta)
    for k in range(e.max_iter):
        logp, g = slope(e, net, density, x.view_as(image), target)
        if float(logp.exp()) >= (e.min_probability or 0):
            return x.view_as(image), k
        for i in range(d):
            if closed[i] or (e.limit is not None and P[i] >= e.limit):
                g[i] = 0.0
        new = [g[i] + e.momentum * M[i] for i in range(d)]
        rank = new if e.momentum_applies_to == "choice" and e.momentum else g
        order = sorted(range(d), key=lambda i: (-abs(rank[i]), i))  # the first of equal ones
        chosen = [
            i
            for i in order
            if rank[i] != 0 and not closed[i] and (e.limit is None or P[i] < e.limit)
        ][: e.pixels]
        if not chosen:
            return x.view_as(image), k
        M = new
        for i in chosen:
            sign = (M[i] > 0) - (M[i] < 0)
            x[i] = (x[i] - delta * sign).clamp(0, 1)
            P[i] += 1
            if e.lock_at_bounds and float(x[i]) in (0.0, 1.0):
                closed[i] = True
    return x.view_as(image), e.max_iter


def slope(
    e: GreedyPixels, net: nn.Module, density: Any, x: Tensor, target: int
) -> tuple[Tensor, list[float]]:
    """log f(x)_t, and the gradient of the loss: (4), (5) or that of the cross-entropy alone."""
    seen: list[Tensor] = []
    hook = net.get_submodule("pool").register_forward_hook(
        lambda _, __, out: seen.append(out.mean((2, 3)))
    )
    x = x[None].detach().requires_grad_()
    logp = net(x).log_softmax(1)[0, target]
    hook.remove()
    ce = -logp
    loss = -logp
    if isinstance(e, DeDUCE):
        ld = density[target].log_prob(seen[0][0].double())
        loss = (
            e.lam * ce - ld
            if e.lam is not None
            else e.mu * ce / ce.detach() - ld / ld.detach().abs()
        )
    (g,) = torch.autograd.grad(loss, x)
    return logp.detach(), g.flatten().tolist()


def asked(n: int = 5) -> tuple[ImageModel, Tensor, list[int]]:
    """Some digits, each with another class as target."""
    x, y = digits()
    return cnn(), x[700 : 700 + n], [int(c + 3) % 10 for c in y[700 : 700 + n]]


def densities(model: ImageModel) -> Any:
    x, y = digits()
    e = DeDUCE()
    with pytest.warns(UserWarning, match="no spectral normalisation"):
        e.fit(model, x[:600], y[:600])
    g = e.gaussians
    return e, [
        torch.distributions.MultivariateNormal(
            g.mean[c], scale_tril=torch.linalg.inv(g.whiten[c]).tril()
        )
        for c in range(10)
    ]


@pytest.fixture(scope="module")
def fitted() -> Any:
    return densities(cnn())


CASES: list[dict[str, Any]] = [
    {"momentum": m, "momentum_applies_to": mode, "pixels": q, "lam": lam, "lock_at_bounds": lock}
    for m, mode in ((0.0, "sign"), (0.6, "sign"), (0.6, "choice"))
    for q in (1, 3)
    for lam in (None, 10.0)
    for lock in (False, True)
]


@pytest.mark.parametrize("settings", CASES, ids=lambda s: " ".join(str(v) for v in s.values()))
def test_equals_the_plain_loop(settings: dict[str, Any], fitted: Any) -> None:
    """Paper: hoeltgen2021 Algorithm 1, Eq. 6."""
    model, x, target = asked(3)
    e = DeDUCE(max_iter=60, min_probability=0.6, **settings)
    e.density_ = fitted[0].density_
    free = torch.ones_like(x, dtype=torch.bool)
    free[1, :, 2:5, 3:6] = False
    cfs = e.explain(model, x, target, locked=~free)
    for i in range(len(x)):
        image, steps = plain_search(e, model.module, fitted[1], x[i], target[i], free[i])
        assert torch.equal(cfs.x_cf[i], image)
        assert int(cfs.iterations[i]) == steps
    assert cfs.found.any()


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("lock", [False, True])
def test_jsma_equals_the_plain_loop(limit: int | None, lock: bool) -> None:
    """Paper: hoeltgen2021 Baseline JSMA."""
    model, x, target = asked(4)
    e = JSMA(max_iter=50, limit=limit, lock_at_bounds=lock, delta=0.3)
    cfs = e.explain(model, x, target)
    for i in range(len(x)):
        image, steps = plain_search(
            e, model.module, None, x[i], target[i], torch.ones_like(x[i], dtype=torch.bool)
        )
        assert torch.equal(cfs.x_cf[i], image)
        assert int(cfs.iterations[i]) == steps
    # else what cannot move is chosen for ever
    assert cfs.found.any() == (lock or limit is not None)


# ---- by hand


def script(steps: Any, x: list[float], **settings: Any) -> tuple[list[float], int]:
    """Where a search with written gradients ends, from a row of pixels."""
    e = Scripted(script=steps, min_probability=0.999, **settings)
    model = linear(torch.zeros(2, len(x)))  # never sure
    cfs = e.explain(model, torch.tensor(x).view(1, 1, 1, -1), 1)
    return [round(v, 4) for v in cfs.x_cf.flatten().tolist()], int(cfs.iterations[0])


def test_momentum_turns_signs_or_choices() -> None:
    """The gradient of the first pixel changes its sign: three ways to go on, worked out by hand.

    M_2 = g_2 + 0.6 g_1 = (-0.5, 0.45) + 0.6 (1, 0.5) = (0.1, 0.75).

    Paper: hoeltgen2021 Eq. 6.
    """
    steps = [[1.0, 0.5], [-0.5, 0.45]]
    assert script(steps, [0.5, 0.5], max_iter=2) == ([0.5, 0.5], 2)  # down, and up again
    # down, and down again
    assert script(steps, [0.5, 0.5], max_iter=2, momentum=0.6) == ([0.1, 0.5], 2)
    assert script(steps, [0.5, 0.5], max_iter=2, momentum=0.6, momentum_applies_to="choice") == (
        [0.3, 0.3],
        2,
    )
    # Too little momentum to turn a sign: as if there were none.
    assert script(steps, [0.5, 0.5], max_iter=2, momentum=0.4) == ([0.5, 0.5], 2)


def test_ties_take_the_first() -> None:
    assert script([[1.0, 1.0, 1.0]], [0.5] * 3, max_iter=1) == ([0.3, 0.5, 0.5], 1)
    assert script([[1.0, -1.0, 1.0]], [0.5] * 3, max_iter=1, pixels=2) == ([0.3, 0.7, 0.5], 1)
    assert script([[0.0, -1.0, 1.0]], [0.5] * 3, max_iter=1) == ([0.5, 0.7, 0.5], 1)
    # A pixel that cannot move, before or behind one of equal priority that can.
    for shortcut in (True, False):
        ahead = script([[1.0, 1.0]], [0.0, 0.5], max_iter=6, shortcut=shortcut)
        assert ahead == ([0.0, 0.3], 6)  # five steps are used up first
        assert script([[1.0, 1.0]], [0.5, 0.0], max_iter=1, shortcut=shortcut) == ([0.3, 0.0], 1)


def test_what_cannot_move_uses_up_its_steps() -> None:
    steps = [[3.0, -2.0, 1.0]]
    for shortcut in (True, False):
        # The first is black and should be darker, the second is white and should be brighter: 5
        # steps each.
        assert script(steps, [0.0, 1.0, 0.5], max_iter=12, shortcut=shortcut) == (
            [0.0, 1.0, 0.1],
            12,
        )
        assert script(steps, [0.0, 1.0, 0.5], max_iter=10, shortcut=shortcut) == (
            [0.0, 1.0, 0.5],
            10,
        )
        assert script(steps, [0.0, 1.0, 0.5], max_iter=7, shortcut=shortcut) == ([0.0, 1.0, 0.5], 7)
        # Closed at a bound, each costs one step.
        closed = script(steps, [0.0, 1.0, 0.5], max_iter=4, shortcut=shortcut, lock_at_bounds=True)
        assert closed == ([0.0, 1.0, 0.1], 4)
        # Without a limit nothing else is ever chosen.
        assert script(steps, [0.0, 1.0, 0.5], max_iter=40, limit=None, shortcut=shortcut) == (
            [0.0, 1.0, 0.5],
            40,
        )
        # With momentum as well.
        more = script(steps, [0.0, 1.0, 0.5], max_iter=12, shortcut=shortcut, momentum=0.6)
        assert more == ([0.0, 1.0, 0.1], 12)


def test_all_pixels_exhausted() -> None:
    """It ends as not found; never are all pixels changed at once."""
    e = Scripted(script=[[4.0, 3.0, 2.0, 1.0]], min_probability=0.999, limit=2)
    cfs = e.explain(linear(torch.zeros(2, 4)), torch.full((1, 1, 1, 4), 0.5), 1)
    assert cfs.x_cf.flatten().tolist() == pytest.approx([0.1] * 4)
    assert cfs.iterations.tolist() == [8]  # 2 steps of each of 4 pixels
    assert cfs.status_codes.tolist() == [Status.NOT_FOUND]
    assert e.calls == 9  # one look a step, and one that finds nothing left
    assert "probability 0.50" in cfs.reasons[0]


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_without_a_gradient_nothing_is_chosen(value: float) -> None:
    e = Scripted(script=[[value, value]], min_probability=0.999)
    cfs = e.explain(linear(torch.zeros(2, 2)), torch.full((1, 1, 1, 2), 0.5), 1)
    assert cfs.x_cf.flatten().tolist() == [0.5, 0.5]
    assert cfs.iterations.tolist() == [0]
    assert e.calls == 1
    assert cfs.status_codes.tolist() == [Status.NOT_FOUND]


def test_no_step_is_made_against_the_wanted_class() -> None:
    """Two classes, a linear model: every step that moves a pixel makes the wanted class likelier,
    for any start."""
    g = torch.Generator().manual_seed(0)
    model = linear(torch.randn(2, 9, generator=g))
    x = torch.rand(20, 1, 1, 9, generator=g)
    e = Recorder(min_probability=0.999, max_iter=30)
    e.explain(model, x, 1, batch_size=1)
    runs = e.runs()
    moved = 0
    for images, scores in runs:
        gap = scores[:, 1] - scores[:, 0]
        for k in range(1, len(gap)):
            changed = not torch.equal(images[k], images[k - 1])
            assert (gap[k] > gap[k - 1]) if changed else (gap[k] == gap[k - 1])
            moved += changed
    assert moved > 20


@dataclass(eq=False, repr=False, kw_only=True)
class Recorder(JSMA):
    """Remembers all images it looked at, pair by pair, and watches the number of steps."""

    shortcut: bool = False
    seen: Any = field(default_factory=list)
    _most: int = 0

    def look(self, model: ImageModel, x: Tensor, goal: BoundTarget) -> Any:
        scores, slopes = super().look(model, x, goal)
        self.seen.append((x.clone(), scores))
        return scores, slopes

    def step(self, slots: PixelSlots, g: Tensor, priority: Tensor, over: Tensor) -> Tensor:
        new = bool((slots.count == 0).all())
        if new:
            self.seen[-1:] = [None, self.seen[-1]]
        out = super().step(slots, g, priority, over)
        self._most = max(self._most, int(slots.steps.max()))
        return out

    def runs(self) -> list[tuple[Tensor, Tensor]]:
        out = []
        part = []
        for entry in [*self.seen, None]:
            if entry is None and part:
                out.append((torch.cat([x for x, _ in part]), torch.cat([s for _, s in part])))
                part = []
            elif entry is not None:
                part.append(entry)
        return out


# ---- invariants


@pytest.mark.parametrize(
    "settings", [{}, {"pixels": 3}, {"momentum": 0.6}, {"limit": 2, "delta": 0.3}]
)
@pytest.mark.parametrize("shortcut", [False, True])
def test_invariants(settings: dict[str, Any], shortcut: bool) -> None:
    model, x, target = asked(6)
    e = Recorder(
        **({"limit": 5, "lock_at_bounds": False, "max_iter": 80} | settings), shortcut=shortcut
    )
    cfs = e.explain(model, x, target, batch_size=1)
    q = e.pixels
    delta = e.delta
    limit = e.limit or 0
    moved = (cfs.x_cf - cfs.x).flatten(1).double()
    assert e._most <= limit
    assert float(moved.abs().max()) <= limit * delta + 1e-6
    assert bool(((cfs.x_cf >= 0) & (cfs.x_cf <= 1)).all())
    value = cfs.x_cf.flatten(1).double()
    before = cfs.x.flatten(1).double()
    on_grid = [
        ((value - start) / delta - ((value - start) / delta).round()).abs() < 1e-4
        for start in (before, 0.0, 1.0)
    ]
    assert bool((on_grid[0] | on_grid[1] | on_grid[2]).all())
    iterations = torch.tensor(cfs.iterations)
    assert bool(((moved != 0).sum(1) <= iterations * q).all())
    assert bool(((moved.abs() / delta - 1e-4).ceil().clamp_min(0).sum(1) <= iterations * q).all())
    assert (cfs.found == (cfs.probability >= 0.5).to_numpy()).all()
    assert cfs.found.any()


def test_the_iterate_before_the_last_is_not_there_yet() -> None:
    model, x, target = asked(6)
    for i in range(6):
        e = Recorder(max_iter=80)
        cfs = e.explain(model, x[i : i + 1], target[i : i + 1])
        if not cfs.found.any():
            continue
        p = torch.cat([s for s in (entry[1] for entry in e.seen if entry)]).softmax(1)[:, target[i]]
        assert float(p[-1]) >= 0.5
        assert bool((p[:-1] < 0.5).all())
        assert len(p) == int(cfs.iterations[0]) + 1


def test_already_met_and_no_iterations() -> None:
    model, x, target = asked(12)
    sure = (model.scores(x).softmax(1).amax(1) > 0.5).nonzero().squeeze(1)[:4].tolist()
    x = x[sure]
    target = [target[i] for i in sure]
    own = model.predict(x)
    cfs = JSMA().explain(model, x, own)
    assert (cfs.status_codes == Status.ALREADY_MET).all()
    assert torch.equal(cfs.x_cf, x)
    assert cfs.iterations.tolist() == [0] * 4
    assert cfs.passes == 0
    none = JSMA(max_iter=0).explain(model, x, [own[0], *target[1:]])
    assert torch.equal(none.x_cf, x)
    assert none.status_codes.tolist() == [Status.ALREADY_MET, *[Status.NOT_FOUND] * 3]
    assert none.iterations.tolist() == [0] * 4


def test_what_is_met_after_the_last_step_is_told_by_its_iterations() -> None:
    model, x, target = asked(5)
    cfs = JSMA().explain(model, x, target)
    i = int(cfs.found.argmax())
    n = int(cfs.iterations[i])
    last = JSMA(max_iter=n).explain(model, x[i : i + 1], target[i])
    assert last.found.all()
    assert last.iterations.tolist() == [n]
    assert torch.equal(last.x_cf[0], cfs.x_cf[i])
    short = JSMA(max_iter=n - 1).explain(model, x[i : i + 1], target[i])
    assert not short.found.any()
    assert short.iterations.tolist() == [n - 1]


# ---- batches

WAYS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.6},
    {"momentum": 0.6, "momentum_applies_to": "choice"},
    {"pixels": 3, "lock_at_bounds": True, "limit": None},
]


@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_a_pair_goes_its_way_in_any_company(settings: dict[str, Any], fitted: Any) -> None:
    model, x, target = asked(7)
    settings = {"momentum": 0.0, "max_iter": 40} | settings

    def run(rows: Any, batch_size: int = 128, **more: Any) -> Any:
        e = DeDUCE(**(settings | more))
        e.density_ = fitted[0].density_
        return e.explain(model, x[rows], [target[i] for i in rows], batch_size=batch_size)

    rows = list(range(7))
    whole = run(rows)
    assert whole.found.any()
    assert len(set(whole.iterations.tolist())) > 3
    variants = [
        (rows, run(rows, batch_size=1)),
        (rows, run(rows, batch_size=3)),
        (rows, run(rows, compact=False)),
        (rows, run(rows, batch_size=3, compact=False)),
        (rows, run(rows, batch_size=2, shortcut=False)),
        (rows, run(rows, shortcut=False, compact=False)),
        ([6, 2, 4, 0], run([6, 2, 4, 0])),
        ([2, 2, 5], run([2, 2, 5], batch_size=2)),
        *[([i], run([i])) for i in rows[:4]],
    ]
    for order, other in variants:
        assert torch.equal(other.x_cf, whole.x_cf[order])
        assert (other.iterations == whole.iterations[order]).all()
        assert (other.status_codes == whole.status_codes[order]).all()


def test_the_shortcut_saves_passes_and_nothing_else() -> None:
    model, x, target = asked(6)
    fast = JSMA(limit=5, lock_at_bounds=False, max_iter=60).explain(model, x, target)
    slow = JSMA(limit=5, lock_at_bounds=False, max_iter=60, shortcut=False).explain(
        model, x, target
    )
    assert torch.equal(fast.x_cf, slow.x_cf)
    assert (fast.iterations == slow.iterations).all()
    assert fast.passes < slow.passes
    waiting = JSMA(limit=5, lock_at_bounds=False, max_iter=60, compact=False).explain(
        model, x, target
    )
    assert fast.passes < waiting.passes


# ---- locks, time, and the caller's things


def test_locked_pixels_keep_every_bit() -> None:
    model, x, target = asked(4)
    x = x.clone()
    x[0, 0, 3, 3] = -0.0
    locked = torch.zeros(8, 8, dtype=torch.bool)
    locked[2:6, 2:6] = True
    cfs = JSMA(max_iter=40).explain(model, x, target, locked=locked)
    kept = cfs.x_cf[:, :, locked].contiguous().view(torch.int32)
    assert torch.equal(kept, x[:, :, locked].contiguous().view(torch.int32))
    assert bool((cfs.x_cf != x)[:, :, ~locked].any())
    with pytest.warns(UserWarning, match="nothing free"):
        none = JSMA(max_iter=40).explain(
            model, x, target, locked=torch.ones(8, 8, dtype=torch.bool)
        )
    assert torch.equal(none.x_cf, x)
    assert not none.found.any()
    # One mask an image.
    each = torch.zeros(4, 1, 8, 8, dtype=torch.bool)
    each[1] = locked
    other = JSMA(max_iter=40).explain(model, x, target, locked=each)
    free = JSMA(max_iter=40).explain(model, x, target)
    assert torch.equal(other.x_cf[1], cfs.x_cf[1])
    assert torch.equal(other.x_cf[[0, 2, 3]], free.x_cf[[0, 2, 3]])


@dataclass
class Rope(TimeBudget):
    """A clock that runs out after some looks at it."""

    looks: int = 0

    def over(self) -> bool:
        self.looks -= 1
        self.ran_out = self.looks < 0
        return self.ran_out


def test_time_that_runs_out() -> None:
    model, x, target = asked(6)
    cfs = JSMA().explain(model, x, target, time_budget=1e-9)
    assert torch.equal(cfs.x_cf, x)
    assert not cfs.found.any()
    assert all(
        "time budget of 1e-09 s" in r
        for r, c in zip(cfs.reasons, cfs.status_codes, strict=True)
        if c == 2
    )
    # After two steps of the first three pairs: they are as far as that, the others have not begun.
    goal = BoundTarget(torch.tensor(target), 1.0, 0.0, True, 10)
    clock = Rope(1.0, Progress(False, ""), looks=2)
    free = torch.ones_like(x, dtype=torch.bool)
    problem = ImageSearchProblem(model, x, goal, free, RowRandom.of(0, x), clock, 3)
    with model.eval_mode():
        found = JSMA(shortcut=False).search(problem)
    two = JSMA(shortcut=False, max_iter=2).explain(model, x[:3], target[:3])
    assert torch.equal(found.x[:3], two.x_cf)
    assert torch.equal(found.x[3:], x[3:])
    assert found.iterations.tolist() == [2, 2, 2, 0, 0, 0]
    assert found.out_of_time is not None
    assert found.out_of_time.all()


def test_what_fails_before_the_time_is_up_is_not_late() -> None:
    model, x, target = asked(2)
    free = torch.ones_like(x, dtype=torch.bool)
    free[0] = False  # stuck at once
    goal = BoundTarget(torch.tensor(target), 1.0, 0.0, True, 10)
    problem = ImageSearchProblem(
        model, x, goal, free, RowRandom.of(0, x), Rope(1.0, Progress(False, ""), looks=1), 2
    )
    with model.eval_mode():
        found = JSMA().search(problem)
    assert found.out_of_time is not None
    assert found.out_of_time.tolist() == [False, True]


def test_the_callers_tensors_stay() -> None:
    model, x, target = asked(4)
    x = x.clone()
    locked = torch.zeros(4, 1, 8, 8, dtype=torch.bool)
    copy = x.clone()
    wanted = list(target)
    cfs = JSMA(max_iter=20).explain(model, x, target, locked=locked)
    assert torch.equal(x, copy)
    assert target == wanted
    assert not locked.any()
    cfs.x_cf.zero_()
    cfs.x.zero_()
    assert torch.equal(x, copy)
    array = copy.double().numpy()
    array.flags.writeable = False
    again = JSMA(max_iter=20).explain(model, array, target)
    assert torch.equal(again.x, copy)


def test_settings_that_cannot_work() -> None:
    model, x, target = asked(1)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.5}, "delta"),
        ({"delta": float("nan")}, "delta"),
        ({"limit": 0}, "limit"),
        ({"limit": 2.5}, "limit"),
        ({"pixels": 0}, "pixels"),
        ({"pixels": True}, "pixels"),
        ({"max_iter": -1}, "max_iter"),
        ({"max_iter": None}, "max_iter"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum_applies_to": "both"}, "momentum_applies_to"),
        ({"min_probability": 1.0}, "min_probability"),
        ({"min_probability": 0.0}, "min_probability"),
    ]
    for settings, name in wrong:
        with pytest.raises(SettingError, match=name):
            JSMA(**settings).explain(model, x, target)
    for call, name in (
        ({"batch_size": 0}, "batch_size"),
        ({"time_budget": 0.0}, "time_budget"),
        ({"seed": 0.5}, "seed"),
    ):
        with pytest.raises(SettingError, match=name):
            JSMA().explain(model, x, target, **call)
