"""Joint training of prediction and recourse, against an implementation by automatic
differentiation."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.row_random import RowRandom
from holdfast.errors import SettingError
from holdfast.methods.amortized import _joint_loop
from holdfast.methods.amortized._joint_loop import JointStack, JointTraining, fit_joint
from holdfast.methods.amortized._joint_settings import JointSettings
from holdfast.methods.amortized._parallel import Batches, Checkpoint, epsilon_in, wanted_class
from holdfast.methods.amortized.virtual_shift import B1, B2, EPS, ROOT, Batch, Shift
from holdfast.nn.stack_derivatives import Leaky, Parts, Weights
from holdfast.schema.encoding import Encoding

M = 3
N = 7
F64 = torch.float64
# The paper's training: the generator is not told the class, and answers are relaxed.
SMALL = JointSettings(
    encoder=(6, 4),
    predictor=(3,),
    generator=(5,),
    epochs=3,
    batch_size=16,
    lr=0.01,
    l2=0.7,
    condition_on_target=False,
    clip_to_data=False,
    hard_categories=False,
    shift=Shift(outer=2),
)


def schema_and_table(rows: int = 60, seed: int = 0) -> tuple[hf.Schema, pd.DataFrame]:
    """Two numbers, a category, and a number and a category that may not change."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "a": rng.random(rows),
            "b": rng.random(rows),
            "c": rng.choice(["x", "y", "z"], rows),
            "e": rng.random(rows),
            "k": rng.choice(["u", "v"], rows),
        }
    )
    return hf.Schema.infer(table, fixed=["e", "k"], scaling="minmax"), table


def data(
    rows: int = 60, dtype: torch.dtype = F64, classes: int = 2
) -> tuple[Tensor, Tensor, Encoding]:
    schema, table = schema_and_table(rows)
    labels = (
        torch.tensor(np.array(table["a"] * classes + 0.3 * table["b"]))
        .long()
        .clamp(max=classes - 1)
    )
    return schema.encode(table).to(dtype), labels, schema.encoding(dtype)


def keys(count: int = M) -> RowRandom:
    return RowRandom.of(0, torch.arange(float(count))[:, None])


def started(how: JointSettings, classes: int = 2, dtype: torch.dtype = F64) -> JointTraining:
    x, labels, encoding = data(classes=classes, dtype=dtype)
    stack = JointStack.of(how, x.shape[1], classes, M, dtype)
    batches = Batches(x, labels.to(dtype), [torch.arange(len(x))] * M, how.batch_size, keys())
    return JointTraining(how, stack, batches, encoding)


def a_batch(training: JointTraining, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Other rows for each model, with weights that differ."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(training.batches.x), (M, N), generator=g)
    w = torch.rand(M, N, 1, generator=g, dtype=training.batches.x.dtype) + 0.5
    return training.batches.x[rows], training.batches.y[rows][..., None], w / w.sum(1, keepdim=True)


def watch(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, Any]]:
    """(arguments, result) of every call from now on."""
    seen = list[tuple[Any, Any]]()
    original = getattr(owner, name)

    def watched(*given: Any) -> Any:
        out = original(*given)
        seen.append((given, out))
        return out

    monkeypatch.setattr(owner, name, watched)
    return seen


def fitted(how: JointSettings, dtype: torch.dtype = torch.float32, **given: Any) -> JointStack:
    x, labels, encoding = data(dtype=dtype)
    return fit_joint(how, x, labels, encoding, **{"workers": 1, **given})


def same(a: JointStack, b: JointStack) -> bool:
    return torch.equal(a.theta.flat, b.theta.flat) and torch.equal(a.theta_g.flat, b.theta_g.flat)


# ---- the reference


def flat(parts: Parts) -> list[Tensor]:
    return [v for part in parts for v in part]


def paired(values: list[Tensor]) -> Parts:
    return list(zip(values[::2], values[1::2], strict=True))


def forward(parts: Parts, x: Tensor, masks: list[Tensor]) -> list[Tensor]:
    """x, the hidden layers, and the outputs."""
    h = [x]
    for i, (w, b) in enumerate(parts):
        a = h[-1] @ w + b
        if i < len(parts) - 1:
            a = nn.functional.leaky_relu(a, 0.01)
            a = a * masks[i][..., : a.shape[2]] if masks else a
        h.append(a)
    return h


def loss(z: Tensor, y: Tensor, w: Tensor, kind: str = "squared") -> Tensor:
    if z.shape[2] > 1:
        return -(torch.log_softmax(z, 2).gather(2, y.long()) * w).sum()
    if kind == "entropy":
        return (nn.functional.binary_cross_entropy_with_logits(z, y, reduction="none") * w).sum()
    return ((torch.sigmoid(z) - y).square() * w).sum()


class Reference:
    """The paper's four steps."""

    def __init__(self, training: JointTraining) -> None:
        stack = training.stack
        self.how = training.how
        self.encoding = training.encoding
        self.sizes = stack.features
        self.classes = stack.classes
        self.theta = [v.clone().requires_grad_() for v in flat(stack.net.unpadded(stack.theta))]
        self.theta_g = [v.clone().requires_grad_() for v in flat(stack.gen.unpadded(stack.theta_g))]
        self.adam = torch.optim.Adam(self.theta, lr=self.how.lr)
        self.adam_g = torch.optim.Adam(self.theta_g, lr=self.how.lr)

    def soft(self, c: Tensor, x: Tensor) -> Tensor:
        out = c.clone()
        at = self.encoding
        numbers = ~at.one_hot
        for group in at.groups:
            columns = group[group < c.shape[2]]
            out[..., columns] = torch.softmax(c[..., columns], 2)
        shown = out.detach().clone()
        if self.how.clip_to_data:
            shown = torch.where(numbers, shown.clamp(at.seen_low, at.seen_high), shown)
        if self.how.hard_categories:
            for group in at.groups:
                columns = group[group < c.shape[2]]
                best = shown[..., columns].argmax(2)
                shown[..., columns] = nn.functional.one_hot(best, len(columns)).to(c.dtype)
        answer = out + (shown - out).detach()  # gradients go straight through
        if self.how.clip_to_data:
            low = numbers & (c < at.seen_low)
            high = numbers & (c > at.seen_high)
            answer.register_hook(lambda g: g.masked_fill((low & (g > 0)) | (high & (g < 0)), 0.0))
        return torch.where(at.fixed, x, answer)

    def step(
        self,
        x: Tensor,
        y: Tensor,
        w: Tensor,
        masks: list[list[Tensor]],
        wish: Tensor,
        start: Tensor,
        epsilon: float,
    ) -> None:
        how = self.how
        # 1
        self.adam.zero_grad()
        (how.l1 * loss(forward(paired(self.theta), x, masks[0])[-1], y, w, how.loss)).backward()
        self.adam.step()
        # 2
        theta = [v.detach() for v in self.theta]
        z = forward(paired(theta), x, [])[-1]
        t = 1 - (torch.sigmoid(z) > 0.5).to(z.dtype) if self.classes == 2 else wish
        h = forward(paired(theta), x, masks[1])
        seen = [h[i] for i in self.sizes]
        if self.classes > 2 or how.condition_on_target:
            seen.append(nn.functional.one_hot(t[..., 0].long(), self.classes).to(x.dtype))
        x_cf = self.soft(forward(paired(self.theta_g), torch.cat(seen, 2), masks[2])[-1], x)
        # 3
        if how.shift is not None:
            theta = self.attacked(theta, x, y, w, x_cf.detach(), t, start, epsilon)
        # 4
        self.adam_g.zero_grad()
        judging = masks[3] if how.attack_dropout else []
        valid = loss(forward(paired(theta), x_cf, judging)[-1], t, w)
        near = ((x_cf - x).square().mean(2, keepdim=True) * w).sum()
        (how.l2 * valid + how.l3 * near).backward()
        self.adam_g.step()

    def attacked(
        self,
        theta: list[Tensor],
        x: Tensor,
        y: Tensor,
        w: Tensor,
        x_cf: Tensor,
        t: Tensor,
        delta: Tensor,
        epsilon: float,
    ) -> list[Tensor]:
        """Virtual Data Shift of the numbers."""
        shift = self.how.shift
        assert shift is not None
        numbers = (~self.encoding.one_hot).nonzero()[:, 0]
        m = [torch.zeros_like(p) for p in theta]
        v = [torch.zeros_like(p) for p in theta]
        count = 0
        for _ in range(shift.outer):
            delta = delta.detach().requires_grad_()
            now = [p.detach() for p in theta]
            m = [p.detach() for p in m]
            v = [p.detach() for p in v]
            now = [p.requires_grad_() for p in now]
            rows = x.index_add(2, numbers, delta)
            for _ in range(shift.inner):
                count += 1
                g = torch.autograd.grad(
                    loss(forward(paired(now), rows, [])[-1], y, w), now, create_graph=True
                )
                held = 2 * len(self.how.encoder) if shift.scope == "head" else 0
                g = [torch.zeros_like(slope) if i < held else slope for i, slope in enumerate(g)]
                m = [B1 * a + (1 - B1) * s for a, s in zip(m, g, strict=True)]
                v = [B2 * a + (1 - B2) * s * s for a, s in zip(v, g, strict=True)]
                now = [
                    p
                    - shift.eta * a / (1 - B1**count) / ((b / (1 - B2**count) + ROOT).sqrt() + EPS)
                    for p, a, b in zip(now, m, v, strict=True)
                ]
            (g_delta,) = torch.autograd.grad(loss(forward(paired(now), x_cf, [])[-1], t, w), delta)
            theta = [p.detach() for p in now]
            delta = (delta + 2.5 * epsilon / shift.outer * g_delta.sign()).clamp(-epsilon, epsilon)
        return theta


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "how",
    [
        replace(SMALL, dropout=0.0),
        replace(SMALL, dropout=0.3),
        replace(SMALL, dropout=0.3, shift=None),
        replace(SMALL, dropout=0.3, attack_dropout=True, l1=2.0, l3=0.5),
        replace(SMALL, dropout=0.3, condition_on_target=True, loss="entropy"),
        replace(SMALL, dropout=0.3, clip_to_data=True),
        replace(
            SMALL, dropout=0.3, condition_on_target=True, clip_to_data=True, hard_categories=True
        ),
        replace(SMALL, dropout=0.3, shift=Shift(outer=2, scope="head")),
    ],
    ids=["plain", "dropout", "counternet", "attack_dropout", "told", "inside", "hard", "head"],
)
def test_steps_are_those_of_the_paper(
    how: JointSettings, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paper: guo2023 Eq. 4, Algorithm 2."""
    training = started(how, classes)
    reference = Reference(training)
    stack = training.stack
    masks = watch(monkeypatch, training, "_masks")
    wishes = watch(monkeypatch, _joint_loop, "wanted_class")
    starts = watch(monkeypatch, training.attack, "_drawn") if training.attack else []
    for seed in range(3):
        x, y, w = a_batch(training, seed)
        for seen in (masks, wishes, starts):
            seen.clear()
        training.step(x, y, w, 0.1)
        assert len(starts) == (how.shift is not None)
        start = starts[0][1] if starts else x
        reference.step(x, y, w, [out for _, out in masks], wishes[0][1], start, 0.1)
        for net, held, theirs in (
            (stack.net, stack.theta, reference.theta),
            (stack.gen, stack.theta_g, reference.theta_g),
        ):
            for a, b in zip(flat(net.unpadded(held)), theirs, strict=True):
                torch.testing.assert_close(a, b.detach(), rtol=0, atol=1e-9)


def test_step_1_leaves_the_generator_and_the_others_the_predictor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paper: guo2023 Algorithm 2."""
    training = started(SMALL)
    held = training.stack.theta.flat, training.stack.theta_g.flat
    states = [[v.clone() for v in held]]
    for adam in training.adams:

        def watched(g: Tensor, step: Any = adam.step) -> None:
            states.append([v.clone() for v in held])
            step(g)
            states.append([v.clone() for v in held])

        monkeypatch.setattr(adam, "step", watched)
    training.step(*a_batch(training), 0.1)
    start, before_1, after_1, before_4, after_4 = states
    for a, b, predictor, generator in (
        (start, before_1, True, True),
        (before_1, after_1, False, True),
        (after_1, before_4, True, True),
        (before_4, after_4, True, False),
    ):
        assert (torch.equal(a[0], b[0]), torch.equal(a[1], b[1])) == (predictor, generator)


def attacked_batch(training: JointTraining, monkeypatch: pytest.MonkeyPatch) -> Batch:
    """What the attack gets to see in one step."""
    seen = list[Batch]()
    attack = training.attack
    assert attack is not None

    def watched(theta: Weights, batch: Batch, *more: Any) -> Weights:
        seen.append(Batch(*(v.clone() for v in vars(batch).values())))
        return attack(theta, batch, *more)

    monkeypatch.setattr(training, "attack", watched)
    training.step(*a_batch(training), 0.1)
    return seen[0]


def test_the_attack_sees_the_classes_to_reach_and_answers_that_keep_to_the_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = started(replace(SMALL, smooth_labels=True))
    x, y, w = a_batch(training)
    b = attacked_batch(training, monkeypatch)
    assert torch.equal(b.x, x)
    assert torch.equal(b.y, y)  # not smoothed
    assert torch.equal(b.w, w)
    scores = training.stack.net.scores(training.stack.theta, x)
    assert torch.equal(b.t, (scores <= 0).to(F64))
    at = training.encoding
    assert torch.equal(b.x_cf[..., at.fixed], x[..., at.fixed])
    for group in at.groups:
        columns = group[group < x.shape[2]]
        torch.testing.assert_close(b.x_cf[..., columns].sum(2), torch.ones(M, N, dtype=F64))
        assert bool((b.x_cf[..., columns] >= 0).all())


def test_an_output_of_exactly_zero_counts_as_class_0(monkeypatch: pytest.MonkeyPatch) -> None:
    training = started(replace(SMALL, l1=0.0))
    training.stack.theta.flat.zero_()
    b = attacked_batch(training, monkeypatch)
    assert not training.stack.theta.flat.any()
    assert torch.equal(b.t, torch.ones_like(b.t))


# ---- whole runs


@pytest.mark.parametrize("still", [Shift(outer=0), Shift(inner=0)])
def test_an_attack_without_steps_trains_a_counternet(still: Shift) -> None:
    """Paper: guo2023 Baseline CounterNet."""
    plain = fitted(replace(SMALL, shift=None), seeds=(0, 1))
    assert same(plain, fitted(replace(SMALL, shift=still), seeds=(0, 1)))
    assert not same(plain, fitted(SMALL, seeds=(0, 1)))


# last batches of 7, 7 and 6 of 16 rows
TABLES = [torch.arange(23), torch.arange(5, 60), torch.arange(10, 48)]


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (F64, 1e-9)])
@pytest.mark.parametrize(
    "settings", [{}, {"smooth_labels": True, "clip": 0.5, "attack_dropout": True}]
)
def test_a_network_is_the_same_whatever_trains_beside_it(
    dtype: torch.dtype, near: float, settings: dict[str, Any]
) -> None:
    how = replace(SMALL, **settings)
    together = fitted(how, dtype, tables=TABLES, seeds=(4, 5, 6))
    for i, rows in enumerate(TABLES):
        alone = fitted(how, dtype, tables=[rows], seeds=(4 + i,))
        torch.testing.assert_close(alone.theta.flat[0], together.theta.flat[i], rtol=0, atol=near)
        torch.testing.assert_close(
            alone.theta_g.flat[0], together.theta_g.flat[i], rtol=0, atol=near
        )


def test_more_workers_give_the_same_networks() -> None:
    one = fitted(SMALL, tables=TABLES, seeds=(4, 5, 6), workers=1)
    two = fitted(SMALL, tables=TABLES, seeds=(4, 5, 6), workers=2)
    torch.testing.assert_close(one.theta.flat, two.theta.flat, rtol=0, atol=1e-6)
    torch.testing.assert_close(one.theta_g.flat, two.theta_g.flat, rtol=0, atol=1e-6)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_training_in_stretches_gives_the_same_bits(workers: int) -> None:
    x, y, encoding = data()
    alike: dict[str, Any] = {
        "tables": [torch.arange(20), torch.arange(60), torch.arange(33)],
        "seeds": [3, 1, 2],
        "workers": workers,
    }
    whole = fit_joint(SMALL, x, y, encoding, **alike)
    checkpoint = Checkpoint(1)
    first = fit_joint(SMALL, x, y, encoding, **alike, checkpoint=checkpoint)
    assert checkpoint.done == 1
    assert not torch.equal(first.theta.flat, whole.theta.flat)
    # what a file would hold
    again = Checkpoint(3, 1, [held.clone() for held in checkpoint.tensors])
    last = fit_joint(SMALL, x, y, encoding, **alike, checkpoint=again)
    assert torch.equal(last.theta.flat, whole.theta.flat)
    assert torch.equal(last.theta_g.flat, whole.theta_g.flat)
    with pytest.raises(SettingError, match="between epochs 3 and 3, got 4"):
        fit_joint(SMALL, x, y, encoding, **alike, checkpoint=replace(again, until=4))


def test_weights_come_from_the_seed_and_nothing_else() -> None:
    state = torch.get_rng_state()
    threads = torch.get_num_threads()
    first = fitted(SMALL, seeds=(3,))
    again = fitted(SMALL, seeds=(3,))
    assert same(first, again)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    other = fitted(SMALL, seeds=(2,))
    assert not torch.equal(first.theta.flat, other.theta.flat)
    assert not torch.equal(first.theta_g.flat, other.theta_g.flat)


def test_networks_picked_from_a_stack_are_copies() -> None:
    stack = fitted(SMALL, seeds=(3, 4))
    x = data(dtype=torch.float32)[0]
    one = stack.pick(torch.tensor([1]))
    torch.testing.assert_close(one.scores(x)[0], stack.scores(x)[1])
    torch.testing.assert_close(one.answers(x)[0], stack.answers(x)[1])
    one.theta.flat.zero_()
    assert bool(stack.theta.flat[1].any())


def test_units_that_are_not_there_stay_zero_in_training() -> None:
    stack = fitted(SMALL, seeds=(0, 1))
    for net, held in ((stack.net, stack.theta), (stack.gen, stack.theta_g)):
        assert torch.equal(net.load(net.weights(2), net.unpadded(held)).flat, held.flat)


@pytest.mark.parametrize(
    ("encoder", "predictor", "classes"),
    [((200,), (5,), 2), ((112,), (20,), 2), ((112,), (10,), 3), ((4,), (200,), 3)],
)
def test_layers_of_any_width_fit_together(
    encoder: tuple[int, ...], predictor: tuple[int, ...], classes: int
) -> None:
    how = replace(SMALL, encoder=encoder, predictor=predictor, epochs=1)
    x, labels, encoding = data(dtype=torch.float32, classes=classes)
    stack = fit_joint(how, x, labels, encoding, classes=classes)
    assert stack.answers(x, torch.ones(1, len(x), 1)).shape == (1, *x.shape)


def test_training_learns_to_predict_and_to_answer() -> None:
    how = replace(SMALL, epochs=60, dropout=0.0)
    x, labels, encoding = data(dtype=torch.float32)
    stack = fitted(how)
    predicted = stack.scores(x)[0, :, 0] > 0
    assert float((predicted == (labels == 1)).float().mean()) > 0.9
    answers = torch.where(encoding.fixed, x, encoding.softmax(stack.answers(x)[0]))
    assert float(((stack.scores(answers)[0, :, 0] > 0) != predicted).float().mean()) > 0.9


def test_with_three_classes_the_generator_does_as_told() -> None:
    """Paper: guo2023 Eq. 6."""
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[labels] + 0.1 * torch.randn(
        90, 2, generator=g
    )
    how = replace(
        SMALL,
        encoder=(20, 10),
        predictor=(10,),
        generator=(20,),
        epochs=80,
        dropout=0.0,
        shift=Shift(outer=1),
    )
    stack = fit_joint(how, x, labels, hf.Schema.box(2).encoding(), classes=3)
    predicted = stack.scores(x)[0].argmax(1)
    assert float((predicted == labels).float().mean()) > 0.95
    for t in range(3):
        told = torch.full((1, 90, 1), t)
        reached = stack.scores(stack.answers(x, told)[0])[0].argmax(1)
        assert float((reached == t)[predicted != t].float().mean()) > 0.9


def test_with_three_classes_the_wish_is_one_of_the_others_each_as_often() -> None:
    """Paper: guo2023 Eq. 6."""
    training = started(SMALL, classes=3)
    z = torch.randn(M, 2000, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    steps = (wanted_class(z, training.random, 2) - z.argmax(2, keepdim=True)) % 3
    assert set(steps.unique().tolist()) == {1, 2}
    # standard error 0.0065
    assert float((steps == 1).double().mean()) == pytest.approx(0.5, abs=0.025)


# ---- parts


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        ("linear", [0.25, 0.5, 0.75, 1.0]),
        ("static", [1.0, 1.0, 1.0, 1.0]),
        ("log", [0.0, 0.5, math.log(3) / math.log(4), 1.0]),
    ],
)
def test_epsilon_follows_its_schedule(
    schedule: Any, shares: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paper: guo2023 Algorithm 2."""
    how = replace(SMALL, epochs=4, schedule=schedule, shift=Shift(epsilon=0.2))
    assert [epsilon_in(how.shift, schedule, e, 4) for e in range(1, 5)] == pytest.approx(
        [0.2 * s for s in shares]
    )
    assert epsilon_in(how.shift, schedule, 1, 1) == 0.2
    assert epsilon_in(None, schedule, 1, 4) == 0
    training = started(how)
    seen = list[float]()
    monkeypatch.setattr(training, "step", lambda x, y, w, epsilon: seen.append(epsilon))
    training.epoch(2)
    assert seen == pytest.approx([0.2 * shares[1]] * 4)


def test_smooth_labels_are_drawn_from_their_ranges() -> None:
    training = started(replace(SMALL, smooth_labels=True))
    y = (torch.arange(4000, dtype=F64) % 2)[None, :, None].expand(M, -1, -1)
    smooth = training._smooth(y, 0)
    for label, low, high in ((1, 0.8, 0.95), (0, 0.05, 0.2)):
        drawn = smooth[y == label]
        assert low <= float(drawn.min()) < low + 0.001
        assert high - 0.001 < float(drawn.max()) <= high
        # standard error 0.0006
        assert float(drawn.mean()) == pytest.approx((low + high) / 2, abs=0.0025)
    assert not torch.equal(smooth, training._smooth(y, 7))
    assert started(SMALL)._smooth(y, 0) is y
    assert started(replace(SMALL, smooth_labels=True), classes=3)._smooth(y, 0) is y


def gradients(how: JointSettings, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    """What the two Adams get in the first step, which has no attack."""
    training = started(replace(how, shift=None))
    seen = [watch(monkeypatch, adam, "step") for adam in training.adams]
    training.step(*a_batch(training), 0.1)
    (((first,), _),), (((second,), _),) = seen
    return first, second


def test_clip_shortens_the_gradient_of_each_network(monkeypatch: pytest.MonkeyPatch) -> None:
    how = replace(SMALL, dropout=0.0)
    whole = gradients(how, monkeypatch)[0].clone()
    lengths = whole.norm(dim=1)
    middle = float(lengths.median())
    clipped = gradients(replace(how, clip=middle), monkeypatch)[0]
    torch.testing.assert_close(clipped, whole * (middle / lengths).clamp_max(1.0)[:, None])
    assert bool((lengths > middle).any())
    assert bool((lengths < middle).any())
    assert float(gradients(replace(how, clip=1e-4), monkeypatch)[1].norm(dim=1).max()) <= 1e-4 * (
        1 + 1e-12
    )


def test_batches_hold_every_row_once_and_weigh_them_equally() -> None:
    tables = sorted(TABLES, key=len, reverse=True)
    number = torch.arange(1 + max(int(table.max()) for table in tables), dtype=F64)
    batches = Batches(number[:, None], 10 * number, tables, 16, keys())
    orders = list[list[int]]()
    for epoch in (1, 2):
        seen = [list[int]() for _ in tables]
        for x, y, w in batches.epoch(epoch):
            assert torch.equal(y, 10 * x)
            torch.testing.assert_close(w.sum(1), torch.ones(len(w), 1, dtype=w.dtype))
            for model, (mine, share) in enumerate(zip(x[..., 0], w[..., 0], strict=True)):
                there = share > 0
                assert len(share[there].unique()) == 1
                seen[model] += mine[there].tolist()
        assert [sorted(rows) for rows in seen] == [table.tolist() for table in tables]
        orders.append(seen[0])
    assert orders[0] != orders[1]


def test_the_order_of_rows_does_not_depend_on_longer_tables_even_where_keys_are_equal() -> None:
    class Coarse(RowRandom):
        def uniform(self, *shape: int, draw: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
            return (super().uniform(*shape, draw=draw, dtype=dtype) * 8).floor()

    long = torch.arange(5000)
    short = torch.arange(300)
    random = keys(2)
    number = torch.arange(5000, dtype=F64)
    beside, *_ = next(
        iter(
            Batches(
                number[:, None], number, [long, short], 300, Coarse(random.keys[slice(0, 2)])
            ).epoch(1)
        )
    )
    alone, *_ = next(
        iter(
            Batches(number[:, None], number, [short], 300, Coarse(random.keys[slice(1, 2)])).epoch(
                1
            )
        )
    )
    assert torch.equal(beside[1], alone[0])


def test_dropout_leaves_out_its_share_of_units_and_scales_up_the_others() -> None:
    training = started(replace(SMALL, dropout=0.3))
    net = Leaky((5, 64, 32, 1))
    masks = training._masks(net, torch.zeros(M, 500, 5, dtype=F64), 1)
    assert [m.shape for m in masks] == [(M, 500, 64), (M, 500, 32)]
    for mask in masks:
        assert sorted(mask.unique().tolist()) == pytest.approx([0, 1 / 0.7])
        # standard error 0.002
        assert float((mask > 0).double().mean()) == pytest.approx(0.7, abs=0.01)
    assert started(replace(SMALL, dropout=0.0))._masks(net, torch.zeros(M, 5, 5), 1) == []


@pytest.mark.parametrize("p", [0.0, 0.25, 0.7, 0.999, 1.0 - 1e-6, 1.0])
def test_coins_have_their_share_and_belong_to_the_row(p: float) -> None:
    random = RowRandom.of(0, torch.arange(100.0)[:, None])
    coins = random.coins(p, 41, 50, draw=3)
    assert coins.shape == (100, 41, 50)
    error = math.sqrt(p * (1 - p) / coins.numel())
    assert float(coins.double().mean()) == pytest.approx(p, abs=4 * error + 1 / 65536)
    some = torch.tensor([7, 99, 0])
    assert torch.equal(random[some].coins(p, 41, 50, draw=3), coins[some])
    # nor on how many rows a batch has
    assert torch.equal(random.coins(p, 13, 50, draw=3), coins[:, :13])
    if 0 < p < 0.999:
        assert not torch.equal(random.coins(p, 41, 50, draw=4), coins)
        v = coins.double() - p
        spread = p * (1 - p)
        for a, b in ((v[1:], v[:-1]), (v[:, 1:], v[:, :-1]), (v[..., 1:], v[..., :-1])):
            # standard error 0.0022
            assert float((a * b).mean()) / spread == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": ()},
        {"predictor": (0,)},
        {"generator": (1.5,)},
        {"dropout": 1.0},
        {"dropout": -0.1},
        {"schedule": "x"},
        {"l1": -1.0},
        {"l2": -0.5},
        {"l3": math.inf},
        {"clip": -2.0},
        {"epochs": 0},
        {"batch_size": 0},
        {"lr": 0.0},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(hf.HoldfastError) as error:
        JointSettings(**settings).checked()
    assert name in str(error.value)
    assert repr(value) in str(error.value)


def test_every_network_needs_a_table_with_rows() -> None:
    for tables, seeds in (([torch.arange(3)], (0, 1)), ([torch.arange(0)], (0,))):
        with pytest.raises(hf.HoldfastError, match="one table with at least one row for each seed"):
            fitted(SMALL, tables=tables, seeds=seeds)


def test_training_that_diverges_says_so() -> None:
    with pytest.raises(hf.HoldfastError, match="diverged"):
        fitted(replace(SMALL, lr=1e38))
