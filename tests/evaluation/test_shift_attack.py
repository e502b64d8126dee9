"""Answers under attack: copies where nothing happens, harm where it does, banks that an audit
takes."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast._core.row_random import RowRandom
from holdfast.errors import SettingError
from holdfast.evaluation.shift_attack import validity_under_shift
from holdfast.methods.amortized.virtual_shift import Attack, Batch, Shift
from holdfast.nn.architecture import mlp
from holdfast.nn.stack_derivatives import Weights, losses
from holdfast.retraining.frozen import net_of
from support.tables import seeded


def points(n: int, seed: int = 0, classes: int = 2) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    score = x[:, 0] + 0.6 * x[:, 1] + 0.1 * rng.normal(size=n)
    y = pd.Series(np.digitize(score, np.linspace(0.4, 1.2, classes + 1)[1:-1]))
    return pd.DataFrame(x, columns=["a", "b", "c"]), y


TABLE, Y = points(300)
SCHEMA = hf.Schema.infer(TABLE)
KINDS: dict[str, nn.Module | None] = {
    "relu": None,
    "tanh": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)),
    "one logit": nn.Sequential(
        nn.Linear(3, 8), nn.LeakyReLU(0.1), nn.Dropout(0.2), nn.Linear(8, 1)
    ),
    "three classes": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)),
}
_made: dict[str, tuple[hf.Model, hf.Counterfactuals, Any]] = {}


def solved(kind: str) -> tuple[hf.Model, hf.Counterfactuals, Any]:
    """A model, answers that just get across its boundary, and the outcomes it was trained on."""
    if kind not in _made:
        y = points(300, classes=3)[1] if kind == "three classes" else Y
        module = KINDS[kind]
        recipe = (
            hf.Recipe(hidden=(8,), epochs=40, lr=0.02)
            if module is None
            else hf.Recipe(module=module, epochs=40, lr=0.02)
        )
        model = recipe.fit(TABLE, y, SCHEMA)
        _made[kind] = model, hf.MinCost().explain(model, TABLE[:60]), y
    return _made[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_without_steps_the_models_are_copies(kind: str) -> None:
    model, cfs, y = solved(kind)
    bank = hf.shift_attack(model, cfs, TABLE, y, epsilon=0.0, outer=0, models=3)
    assert bank.families == {"shift": 3}
    assert bank.classes == model.classes
    with model.eval_mode():
        expected = model.score_frame(TABLE)
    for scores in bank.scores(TABLE):
        torch.testing.assert_close(scores, expected)
    assert bank.model(2).predict(TABLE).equals(model.predict(TABLE))
    with pytest.raises(
        SettingError, match="family 'shift' makes copies: all of its 3 models compute the same"
    ):
        hf.audit(cfs, bank)
    assert hf.audit(cfs, bank[:1]).survival()[cfs.found].min() == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_an_attack_lowers_validity_more_than_retraining_does(kind: str) -> None:
    model, cfs, y = solved(kind)
    before = [m.training for m in model.module.modules()]
    mark = model.fingerprint()
    worst = hf.shift_attack(model, cfs, TABLE, y, epsilon=0.3)
    drawn = hf.shift_attack(model, cfs, TABLE, y, epsilon=0.3, ascend=False)
    assert (model.fingerprint(), [m.training for m in model.module.modules()]) == (mark, before)
    worst_share = float(hf.audit(cfs, worst).survival().mean())
    drawn_share = float(hf.audit(cfs, drawn).survival().mean())
    assert worst_share < 0.8
    assert worst_share <= drawn_share + 0.05
    assert worst.fingerprint() != drawn.fingerprint()
    again = hf.shift_attack(model, cfs, TABLE, y, epsilon=0.3)
    assert again.fingerprint() == worst.fingerprint()
    assert (
        hf.shift_attack(model, cfs, TABLE, y, epsilon=0.3, seed=1).fingerprint()
        != worst.fingerprint()
    )


def test_the_bank_is_what_virtual_data_shift_gives() -> None:
    model, cfs, y = solved("relu")
    bank = hf.shift_attack(model, cfs, TABLE, y, models=2, seed=5, outer=3)
    net, theta = net_of(model.module, 2)
    x = SCHEMA.encode(TABLE)
    labels = torch.tensor(y.to_numpy()).float()
    found = torch.as_tensor(cfs.found)
    goal = 1 - cfs.goal.label[found]  # asked for any other class than the present one
    given = [v.expand(2, *v.shape) for v in (x, labels[:, None], torch.full((300, 1), 1 / 300))]
    answers = [v.expand(2, *v.shape) for v in (cfs.x_cf[found], goal[:, None].float())]
    batch = Batch(*given, *answers, torch.full((2, len(goal), 1), 1 / len(goal)))
    random = RowRandom.of(5, torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    with torch.no_grad():
        shifted = Attack(net, theta, Shift(outer=3, eta=0.03), SCHEMA.encoding())(
            theta, batch, random, 0, 0.1
        )
        torch.testing.assert_close(bank.scores(TABLE), net.scores(shifted, given[0]))
        hurt = losses(bank.scores(cfs.x_cf[found]), goal.float()).mean()
        assert hurt > losses(net.scores(theta, answers[0]), goal.float()).mean()


def test_a_draw_of_rows_files_and_company(tmp_path: Any) -> None:
    model, cfs, y = solved("relu")
    bank = hf.shift_attack(model, cfs, TABLE, y, rows=50, models=2)
    few = hf.shift_attack(model, cfs, SCHEMA.encode(TABLE), y.to_numpy(), rows=50, models=2)
    assert few.fingerprint() == bank.fingerprint()
    ordinary = hf.ModelBank.retrain(
        hf.Recipe(hidden=(8,), epochs=5),
        TABLE,
        y,
        SCHEMA,
        families={"seed": 3},
        classes=model.classes,
    )
    both = hf.audit(cfs, bank.join(ordinary))
    assert both.families == ["shift", "seed"]
    assert list(both.by_family().index) == ["all", "shift", "seed"]
    bank.save(tmp_path / "bank.safetensors")
    assert hf.ModelBank.load(tmp_path / "bank.safetensors").fingerprint() == bank.fingerprint()


def test_validity_of_stacks_with_tables_of_different_length() -> None:
    nets = [net_of(seeded(mlp(3, (6,), 1), s), 1) for s in range(3)]
    net = nets[0][0]
    theta = Weights(torch.cat([t.flat for _, t in nets]), nets[0][1].sizes)
    g = torch.Generator().manual_seed(0)
    sizes = 20, 45, 33
    layout = SCHEMA.encoding()
    x, x_cf = ([torch.rand(n, 3, generator=g) for n in sizes] for _ in range(2))
    y, t = ([(torch.rand(n, generator=g) > 0.5).long() for n in sizes] for _ in range(2))
    with torch.no_grad():
        now = [
            (net.scores(Weights(theta.flat[i : i + 1], theta.sizes), x_cf[i][None])[0, :, 0] > 0)
            for i in range(3)
        ]
    plain = [
        float(torch.stack([p.double().mean() for p in (v == w).split(16)]).mean())
        for v, w in zip(now, t, strict=True)
    ]
    still = validity_under_shift(net, theta, x, y, x_cf, t, Shift(outer=0), layout, batch_size=16)
    assert still.tolist() == pytest.approx(plain)
    own = [v.long() for v in now]  # answers that all have the class they should
    held = validity_under_shift(
        net, theta, x, y, x_cf, own, Shift(eta=0.03), layout, batch_size=16, seeds=(1, 2, 3)
    )
    assert float(held.max()) < 1.0
    for i in range(3):
        one = Weights(theta.flat[i : i + 1], theta.sizes)
        parts = [[v[i]] for v in (x, y, x_cf, own)]
        alone = validity_under_shift(
            net, one, *parts, Shift(eta=0.03), layout, batch_size=16, seeds=(1 + i,)
        )
        assert float(alone[0]) == pytest.approx(float(held[i]), abs=1e-6)
    with pytest.raises(hf.HoldfastError, match="equal length for each of 3 models"):
        validity_under_shift(net, theta, x, y[:2], x_cf, t, Shift(), layout)


def test_weights_that_are_no_numbers_are_no_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which step size leads there is up to the processor, so the attack is made to go wrong."""

    def diverge(self: Attack, theta: Weights, *_: Any) -> Weights:
        theta.flat[-1] = torch.inf
        return theta

    monkeypatch.setattr(Attack, "__call__", diverge)
    model, cfs, y = solved("relu")
    with pytest.raises(hf.HoldfastError, match="lower eta"):
        hf.shift_attack(model, cfs, TABLE, y)


def test_errors_name_the_thing() -> None:
    model, cfs, y = solved("relu")
    for wrong, said in (
        ({"models": 0}, "models must be"),
        ({"rows": 0}, "rows must be"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"eta": 0.0}, "eta"),
        ({"steps": 3}, r"\['steps'\]; there are outer, inner"),
        ({"eta": 1e37}, "eta must be positive and less than 1e36, got 1e[+]37"),
    ):
        with pytest.raises(hf.HoldfastError, match=said):
            hf.shift_attack(model, cfs, TABLE, y, **wrong)
    with pytest.raises(hf.HoldfastError, match="got DataFrame"):
        hf.shift_attack(model, cfs.after, TABLE, y)
    with pytest.raises(hf.HoldfastError, match="as many outcomes as rows"):
        hf.shift_attack(model, cfs, TABLE, y[:7])
    with pytest.raises(hf.HoldfastError, match="needs a torch module"):
        hf.shift_attack(hf.Model.of(lambda f: f["a"].to_numpy(), SCHEMA), cfs, TABLE, y)
    soft = hf.Model.of(nn.Sequential(nn.Linear(3, 1), nn.Sigmoid()), SCHEMA)
    with pytest.raises(hf.HoldfastError, match="needs the logits"):
        hf.shift_attack(soft, cfs, TABLE, y)
    with pytest.raises(hf.HoldfastError, match="nothing to attack"):
        hf.shift_attack(model, hf.MinCost().explain(model, TABLE[:0]), TABLE, y)
    named = hf.Model.of(model.module, SCHEMA, classes=["no", "yes"])
    with pytest.raises(hf.HoldfastError, match=r"the model has \['no', 'yes'\]"):
        hf.shift_attack(named, cfs, TABLE, y)
    other = hf.Model.of(model.module, hf.Schema.infer(TABLE * 2), classes=model.classes)
    with pytest.raises(hf.HoldfastError, match="another schema"):
        hf.shift_attack(other, cfs, TABLE, y)
