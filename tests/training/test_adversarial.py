"""Adversarial training and attacks: closed forms of linear models, balls and boxes, stacks against
single networks."""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.progress import Progress
from holdfast.evaluation.attacks import attacked_accuracy, pgd_attack
from holdfast.nn.architecture import mlp
from holdfast.nn.module_stack import ModuleStack, cross_entropy, stack_of
from holdfast.nn.stack import Stack
from holdfast.retraining.attacks import Adversary
from holdfast.retraining.loop import AttackedBatches, Loop, RobustLoop, Variation
from holdfast.retraining.recipe import Recipe
from holdfast.training.adversarial import train_adversarial
from support.law_table import mixed_schema, mixed_table

F64 = torch.float64
BAR = Progress(False, "")
RNG = np.random.default_rng(0)
TABLE = mixed_table(120)
SCHEMA = mixed_schema(TABLE)
SUM = SCHEMA.encode(TABLE).sum(1)
Y = pd.Series(np.where(SUM.median() < SUM, "yes", "no"), index=TABLE.index)
SMALL = Recipe(hidden=(6,), epochs=3, batch_size=32, lr=0.01)


def linear(outputs: int, d: int = 5, models: int = 3) -> Stack:
    stack = Stack((d, outputs), models, F64)
    stack.theta.copy_(
        torch.randn(len(stack.theta), generator=torch.Generator().manual_seed(0), dtype=F64)
    )
    return stack


def some(models: int = 3, n: int = 11, d: int = 5, classes: int = 2) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.rand(models, n, d, generator=g, dtype=F64), torch.randint(
        classes, (models, n), generator=g
    )


# ---- the exact maximum of linear scores


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_worst_row_of_a_linear_score_is_that_of_all_corners_and_of_the_closed_form(
    outputs: int,
) -> None:
    """Paper: krishna2024 Eq. 14 to 16."""
    stack = linear(outputs)
    x, y = some()
    eps = 0.17
    loop = RobustLoop(epsilon=eps, attack_box=False)
    plan = Variation((0, 1, 2), (0, 1, 2))
    worst = AttackedBatches(stack, x.flatten(0, 1), plan, loop, (eps,) * 3)
    raw = stack.scores(worst(x, y))
    mine = torch.stack([cross_entropy(r, labels) for r, labels in zip(raw, y, strict=True)])
    w, b = stack.layers[0]
    line, bias = (
        (w[..., 1] - w[..., 0], b[..., 1] - b[..., 0]) if outputs == 2 else (w[..., 0], b[..., 0])
    )
    side = 2.0 * y - 1
    score = (x * line[:, None]).sum(2) + bias
    closed = torch.log1p(torch.exp(-(side * score - eps * line.abs().sum(1, keepdim=True))))
    torch.testing.assert_close(mine, closed, rtol=1e-12, atol=0)
    corners = torch.tensor(list(itertools.product([-eps, eps], repeat=5)), dtype=F64)
    moved = (((x[:, :, None] + corners) * line[:, None, None]).sum(3) + bias[..., None]) * side[
        ..., None
    ]
    torch.testing.assert_close(mine, torch.log1p(torch.exp(-moved)).amax(2), rtol=1e-12, atol=0)


def test_the_gradient_of_linear_adversarial_training_is_the_closed_one() -> None:
    """Paper: krishna2024 Eq. 1."""
    stack = linear(1, models=1)
    x, y = some(1)
    eps = 0.2
    worst = AttackedBatches(
        stack, x[0], Variation((0,), (0,)), RobustLoop(attack_box=False), (eps,)
    )
    g = stack.gradient(worst(x, y), y, None)
    w, b = stack.layers[0]
    side = 2.0 * y[0] - 1
    line = w[0, :, 0]
    a = torch.sigmoid(-(side * (x[0] @ line + b[0, 0, 0]) - eps * line.abs().sum()))
    by_w = (a[:, None] * (-side[:, None] * x[0] + eps * line.sign())).mean(0)
    torch.testing.assert_close(
        g, torch.cat([by_w, -(a * side).mean()[None]]), rtol=1e-12, atol=1e-15
    )


def test_pgd_reaches_the_exact_maximum_of_a_linear_score_in_both_balls() -> None:
    stack = linear(2)
    x, y = some()
    w = stack.layers[0][0]
    line = (w[..., 1] - w[..., 0])[:, None] * (1 - 2 * y[..., None])
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(2), dtype=F64) * 2 - 1
    for norm, best in (
        ("linf", 0.3 * line.abs().sum(2)),
        ("l2", 0.3 * line.square().sum(2).sqrt()),
    ):
        z = Adversary(10, norm, start=False).attack(lambda z: stack.ascent(z, y), x, 0.3)
        torch.testing.assert_close(((z - x) * line).sum(2), best, rtol=1e-12, atol=0)
        z = Adversary(200, norm, size=0.1).attack(lambda z: stack.ascent(z, y), x, 0.3, noise=noise)
        torch.testing.assert_close(((z - x) * line).sum(2), best, rtol=1e-9, atol=0)


# ---- balls and boxes


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("steps", [1, 7])
def test_attacked_rows_stay_in_ball_box_and_free_columns_and_raise_the_loss(
    norm: Any, steps: int
) -> None:
    net = stack_of(mlp(5, (8,), 3).double(), 3)
    x, y = some(classes=3)
    net.theta.normal_(generator=torch.Generator().manual_seed(0))
    free = torch.tensor([True, True, False, True, True])
    eps = torch.tensor([0.0, 0.1, 0.4], dtype=F64)[:, None, None]
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(3), dtype=F64) * 2 - 1
    box = torch.zeros(5, dtype=F64), torch.ones(5, dtype=F64)
    z = Adversary(steps, norm).attack(
        lambda z: net.ascent(z, y), x, eps, noise=noise, box=box, free=free
    )
    far = (z - x).abs().amax(2) if norm == "linf" else (z - x).square().sum(2).sqrt()
    assert bool((far <= eps[..., 0] * (1 + 1e-9)).all())
    assert bool(((z >= 0) & (z <= 1)).all())
    assert torch.equal(z[..., 2], x[..., 2])
    assert torch.equal(z[0], x[0])  # epsilon 0
    before = torch.stack(
        [cross_entropy(r, labels) for r, labels in zip(net.scores(x), y, strict=True)]
    ).mean(1)
    after = torch.stack(
        [cross_entropy(r, labels) for r, labels in zip(net.scores(z), y, strict=True)]
    ).mean(1)
    assert bool((after[1:] > before[1:]).all())


def test_rows_outside_the_box_are_not_pulled_into_it() -> None:
    x = torch.tensor([[1.5, 0.5]], dtype=F64)
    box = torch.zeros(2, dtype=F64), torch.ones(2, dtype=F64)
    z = Adversary.fgsm().attack(torch.ones_like, x, 0.2, box=box)
    assert z.tolist() == [[1.5, pytest.approx(0.7)]]
    z = Adversary.fgsm().attack(lambda z: -torch.ones_like(z), x, 0.2, box=box)
    assert z.tolist() == [[pytest.approx(1.3), pytest.approx(0.3)]]


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_ascent_by_hand_is_that_of_autograd_up_to_a_positive_factor(outputs: int) -> None:
    module = mlp(5, (7, 6), outputs).double()
    stack = Stack.like(module, 3)
    assert stack is not None
    stack.theta.normal_(generator=torch.Generator().manual_seed(0))
    any_module = ModuleStack(module, 3)
    any_module.load(stack.state())
    x, y = some(classes=max(2, outputs))
    mine = stack.ascent(x, y)
    torch.testing.assert_close(mine, any_module.ascent(x, y), rtol=1e-9, atol=1e-12)
    rows = x.clone().requires_grad_()
    loss = sum(
        cross_entropy(r, labels).sum() for r, labels in zip(stack.scores(rows), y, strict=True)
    )
    assert isinstance(loss, Tensor)
    (g,) = torch.autograd.grad(loss, rows)
    cosine = nn.functional.cosine_similarity(mine, g, dim=2)
    torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=1e-9, atol=0)


# ---- training


def test_a_network_is_the_same_alone_and_beside_others() -> None:
    both = train_adversarial(SMALL, TABLE, Y, SCHEMA, epsilon=[0, 0.1, 0.3], seeds=2, seed=5)
    x = SCHEMA.encode(TABLE)
    for epsilon, seed in ((0.0, 0), (0.1, 1), (0.3, 0)):
        alone = Recipe(hidden=(6,), epochs=3, batch_size=32, lr=0.01, epsilon=epsilon).fit(
            TABLE, Y, SCHEMA, seed=5 + seed
        )
        with alone.eval_mode():
            torch.testing.assert_close(both.model(epsilon, seed)(x), alone(x), rtol=1e-4, atol=1e-5)
    assert both.bank.families == {"epsilon 0": 2, "epsilon 0.1": 2, "epsilon 0.3": 2}
    assert not torch.equal(both.model(0.0)(x), both.model(0.1)(x))
    again = train_adversarial(SMALL, TABLE, Y, SCHEMA, epsilon=[0, 0.1, 0.3], seeds=2, seed=5)
    assert again.bank.fingerprint() == both.bank.fingerprint()
    assert again.bank.members() == both.bank.members()
    assert len(both.bank.members()) == 6


def test_epsilon_zero_is_plain_training_bit_for_bit_and_known_by_the_same_origin() -> None:
    plain = hf.ModelBank.retrain(SMALL, TABLE, Y, SCHEMA, families={"seed_and_order": 1}, seed=4)
    hard = train_adversarial(SMALL, TABLE, Y, SCHEMA, epsilon=[0], seed=5)
    x = SCHEMA.encode(TABLE)
    torch.testing.assert_close(plain.scores(x), hard.bank.scores(x), rtol=0, atol=0)
    assert plain.members() == hard.bank.members()


def test_attacks_of_training_follow_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[Adversary, Any]]()
    attack = Adversary.attack

    def watched(self: Adversary, *args: Any, **more: Any) -> Tensor:
        seen.append((self, more["box"]))
        return attack(self, *args, **more)

    monkeypatch.setattr(Adversary, "attack", watched)
    for settings, how, box in (
        ({}, Adversary(10), True),
        ({"attack_steps": 3, "attack_norm": "l2"}, Adversary(3, "l2"), True),
        ({"attack": "fgsm", "attack_box": False}, Adversary.fgsm(), False),
        ({"hidden": ()}, Adversary.fgsm(), True),  # the exact maximum
        ({"hidden": (), "attack_norm": "l2"}, Adversary(10, "l2"), True),
    ):
        seen.clear()
        made: dict[str, Any] = {
            "hidden": (4,),
            "epochs": 1,
            "batch_size": 60,
            "epsilon": 0.1,
            **settings,
        }
        Recipe(**made).fit(TABLE, Y, SCHEMA)
        assert len(seen) == 2
        assert {s for s, _ in seen} == {how}
        assert all((b is not None) == box for _, b in seen)


def test_hardened_networks_keep_more_accuracy_under_attack() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(600, 6, generator=g)
    table = pd.DataFrame(x.numpy(), columns=[f"c{i}" for i in range(6)])
    y = pd.Series((x @ torch.tensor([2.0, -1, 0.3, 0.3, -0.3, 0.3]) > 0.8).long().numpy())
    schema = hf.Schema.infer(table, scaling="minmax")
    for hidden in ((), (12,)):
        hard = train_adversarial(
            Recipe(hidden=hidden, epochs=40, lr=0.02), table, y, schema, epsilon=[0, 0.1, 0.2]
        )
        kept = attacked_accuracy(hard.bank, table, y, epsilon=0.15)
        assert kept[0] < kept[1]
        assert kept[0] < kept[2]


def test_every_family_is_trained_adversarially() -> None:
    families = {"seed": 1, "leave_one_out": 1, "bootstrap": 1, "last_layer": 1, "width": 1}
    plain = hf.ModelBank.retrain(SMALL, TABLE, Y, SCHEMA, families=families)
    hard = hf.ModelBank.retrain(
        hf.Recipe.of(SMALL, epsilon=0.2), TABLE, Y, SCHEMA, families=families
    )
    assert not plain.members() & hard.members()
    before = plain.scores(TABLE)
    after = hard.scores(TABLE)
    assert bool(((before - after).abs().amax((1, 2)) > 1e-3).all())


def test_plain_gradient_descent_is_torch_sgd() -> None:
    recipe = Recipe(
        hidden=(4,), epochs=3, batch_size=40, lr=0.1, weight_decay=0.01, optimizer="sgd"
    )
    start = Recipe.of(recipe, epochs=1).fit(TABLE, Y, SCHEMA)
    end = Recipe.of(recipe, epochs=2).fit(TABLE, Y, SCHEMA)
    module: Any = start.module
    assert isinstance(module, nn.Sequential)
    x = SCHEMA.encode(TABLE)
    labels = torch.tensor((Y == "yes").to_numpy()).long()
    first = {name: value.clone() for name, value in module.state_dict().items()}
    # The order of the second epoch comes from the same generator.
    from holdfast.retraining.loop import Orders

    orders = Orders(Variation((0,), (0,)), len(x))
    orders.next()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.01)
    for rows in torch.split(orders.next()[0], 40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x[rows]), labels[rows]).backward()
        optimizer.step()
    for name, value in end.module.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value)
        assert not torch.equal(first[name], value)


# ---- evaluation


def test_a_bank_is_attacked_as_its_models_are() -> None:
    hard = train_adversarial(SMALL, TABLE, Y, SCHEMA, epsilon=[0, 0.2], seeds=2)
    for settings in (
        {},
        {"steps": 1, "step_size": 1.0, "start": False},
        {"norm": "l2", "steps": 5},
    ):
        all_rows = pgd_attack(hard.bank, TABLE, Y, epsilon=0.2, **settings)
        kept = attacked_accuracy(hard.bank, TABLE, Y, epsilon=0.2, **settings)
        for i in range(4):
            alone = hard.bank.model(i)
            torch.testing.assert_close(
                pgd_attack(alone, TABLE, Y, epsilon=0.2, **settings), all_rows[i], atol=2e-4, rtol=0
            )
            assert attacked_accuracy(alone, TABLE, Y, epsilon=0.2, **settings) == pytest.approx(
                kept[i], abs=0.02
            )


def test_what_nobody_can_change_is_spared_on_request() -> None:
    model = SMALL.fit(TABLE, Y, SCHEMA)
    x = SCHEMA.encode(TABLE)
    at = SCHEMA.encoding()
    assert bool(at.fixed.any())
    z = pgd_attack(model, TABLE, Y, epsilon=0.3)
    assert bool(((z != x) & at.fixed).any())
    z = pgd_attack(model, TABLE, Y, epsilon=0.3, immutable=["fixed", "categories"])
    assert torch.equal(z[:, at.fixed | at.one_hot], x[:, at.fixed | at.one_hot])
    assert bool((z != x).any())
    few = pgd_attack(model, TABLE.iloc[[3, 50]], Y.iloc[[3, 50]], epsilon=0.3)
    # a row does not depend on others
    assert torch.equal(few, pgd_attack(model, TABLE, Y, epsilon=0.3)[[3, 50]])


def test_accuracy_without_an_attack_is_accuracy() -> None:
    model = SMALL.fit(TABLE, Y, SCHEMA)
    right = float((model.predict(TABLE) == Y).mean())
    assert attacked_accuracy(model, TABLE, Y, epsilon=0.0) == pytest.approx(right)
    ladder = [float(attacked_accuracy(model, TABLE, Y, epsilon=e)) for e in (0.0, 0.1, 0.5, 2.0)]
    assert ladder == sorted(ladder, reverse=True)
    assert ladder[-1] < right


# ---- errors


def test_errors_name_the_thing() -> None:
    for settings, said in (
        ({"epsilon": -0.1}, "epsilon must be a number and at least 0, got -0.1"),
        ({"epsilon": math.nan}, "epsilon must be a number"),
        ({"optimizer": "adagrad"}, "optimizer must be 'adam' or 'sgd'"),
        ({"attack": "cw"}, "attack must be 'pgd' or 'fgsm'"),
        ({"attack_norm": "l1"}, "norm must be 'linf' or 'l2'"),
        ({"attack_steps": 0}, "attack_steps must be an integer of at least 1, got 0"),
        ({"attack_steps": 1.5}, "attack_steps must be an integer"),
        ({"attack_box": 3}, "attack_box must be true or false"),
    ):
        with pytest.raises(hf.HoldfastError, match=said):
            Recipe(**settings)
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(hf.HoldfastError, match="only networks"):
        Recipe(estimator=LogisticRegression(), epsilon=0.1)
    with pytest.raises(hf.HoldfastError, match="only networks"):
        train_adversarial(LogisticRegression(), TABLE, Y, SCHEMA)
    for epsilon, said in (
        ([], "list of radii"),
        ([0.1, 0.1], "must grow"),
        ([0.2, 0.1], "must grow"),
        ([-1], "at least 0"),
    ):
        with pytest.raises(hf.HoldfastError, match=said):
            train_adversarial(SMALL, TABLE, Y, SCHEMA, epsilon=epsilon)
    with pytest.raises(hf.HoldfastError, match="seeds must be"):
        train_adversarial(SMALL, TABLE, Y, SCHEMA, seeds=0)
    hard = train_adversarial(SMALL, TABLE, Y, SCHEMA, epsilon=[0, 0.1])
    with pytest.raises(hf.HoldfastError, match=r"no network was trained with epsilon 0\.2"):
        hard.model(0.2)
    with pytest.raises(hf.HoldfastError, match="no number 1"):
        hard.model(0.1, 1)
    with pytest.raises(hf.HoldfastError, match="immutable is a list"):
        pgd_attack(hard.bank, TABLE, Y, epsilon=0.1, immutable=["ages"])
    with pytest.raises(hf.HoldfastError, match="no class 'maybe'"):
        pgd_attack(hard.bank, TABLE, Y.replace("yes", "maybe"), epsilon=0.1)
    black = hf.Model.of(
        lambda rows: np.tile([0.4, 0.6], (len(rows), 1)), SCHEMA, classes=["no", "yes"]
    )
    with pytest.raises(hf.HoldfastError, match="this model has none"):
        pgd_attack(black, TABLE, Y, epsilon=0.1)


def test_the_loop_of_other_trainers_is_as_it_was() -> None:
    assert not any(name.startswith(("attack", "epsilon", "optimizer")) for name in vars(Loop()))
