"""Categories as softmaxes: the map, its gradient, and the descent through it, against autograd and
by hand."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.errors import SettingError
from holdfast.methods._walk import SoftWalk
from holdfast.nn.architecture import mlp
from holdfast.problem import SearchProblem
from holdfast.schema.encoding import Encoding
from holdfast.target import Target
from support.tables import mixed_schema, mixed_table, problem_with, seeded

TABLE = mixed_table(60)
OPEN = hf.Schema.infer(TABLE)  # everything may change
LIMITED = mixed_schema(TABLE)  # sex is fixed, job may only become a or b


def groups(at: Encoding) -> list[torch.Tensor]:
    return [g[g < len(at.center)] for g in at.groups]


def bce(model: nn.Module, x: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
    """VanillaCF's loss as printed, for the class 1 of a model with one logit."""
    p = torch.sigmoid(model(soft)).squeeze(1)
    return (-torch.log(p) + 0.5 * (x - soft).square().mean(1)).sum()


def question(model: hf.Model, frame: pd.DataFrame) -> SearchProblem:
    """What a search for the class 'yes' is given."""
    with model.eval_mode():
        x = model.schema.encode(frame, model.dtype)
        goal = Target("yes").bind(model, model.score_frame(frame, x))
    return problem_with(goal, model, x)


# ---- the map


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (0,)])
@pytest.mark.parametrize("size", [1.0, 30.0, 1e3, 1e20])
def test_softmax_of_each_category(shape: tuple[int, ...], size: float) -> None:
    at = OPEN.encoding(torch.float32)
    z = size * torch.randn(*shape, len(at.center), generator=torch.Generator().manual_seed(0))
    soft = at.softmax(z)
    assert soft.shape == z.shape
    assert torch.equal(soft[..., ~at.one_hot], z[..., ~at.one_hot])
    for columns in groups(at):
        assert torch.allclose(soft[..., columns], torch.softmax(z[..., columns], -1), atol=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_closed_levels_have_no_part(size: float) -> None:
    at = OPEN.encoding(torch.float64)
    z = size * torch.randn(
        9, len(at.center), generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    open_ = torch.ones_like(z)
    for columns in groups(at):
        open_[::2, columns[0]] = 0
        open_[3, columns[1:]] = 0
    soft = at.softmax(z, open_)
    for columns in groups(at):
        some = z[:, columns].masked_fill(open_[:, columns] == 0, -math.inf)
        assert torch.allclose(soft[:, columns], torch.softmax(some, 1), atol=1e-12)
        assert soft[3, columns[0]] == 1


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_gradient_of_the_map_is_that_of_autograd(size: float) -> None:
    at = OPEN.encoding(torch.float64)
    generator = torch.Generator().manual_seed(2)
    z = (
        size * torch.randn(3, 4, len(at.center), generator=generator, dtype=torch.float64)
    ).requires_grad_()
    g = torch.randn(z.shape, generator=generator, dtype=torch.float64)
    soft = at.softmax(z)
    (known,) = torch.autograd.grad(soft, z, g)
    assert torch.allclose(at.softmax_pull(soft.detach(), g), known, atol=1e-12)


def test_a_row_does_not_depend_on_the_others() -> None:
    many = pd.DataFrame(
        {"place": pd.Categorical([f"p{i}" for i in range(51)]), "size": np.linspace(0, 1, 51)}
    )
    at = hf.Schema.infer(many).encoding(torch.float32)
    z, g = torch.randn(2, 24, len(at.center), generator=torch.Generator().manual_seed(0)).unbind()
    soft = at.softmax(z)
    back = at.softmax_pull(soft, g)
    for n in range(1, 24):
        assert torch.equal(at.softmax(z[:n]), soft[:n])
        assert torch.equal(at.softmax_pull(soft[:n], g[:n]), back[:n])
    assert torch.equal(at.softmax(z.view(2, 3, 4, -1)), soft.view(2, 3, 4, -1))


def test_without_categories_nothing_happens() -> None:
    at = hf.Schema.box(3).encoding(torch.float32)
    z = torch.randn(2, 3)
    assert at.softmax(z) is z
    assert at.softmax_pull(z, z) is z


# ---- the descent


@pytest.mark.parametrize("schema", [OPEN, LIMITED])
def test_gradient_of_the_relaxed_loss_is_that_of_autograd(schema: hf.Schema) -> None:
    module = seeded(mlp(schema.width, (8,), 1)).double()
    model = hf.Model.of(module, schema, classes=["no", "yes"])
    problem = question(model, TABLE.head(20))
    at = problem.feasible.encoding
    with model.eval_mode():
        walk = SoftWalk(hf.Descent.vanilla(), problem, 0.5)
        walk.level = 0.0  # without the little to spare
        walk.z = (
            walk.z
            + 0.3 * torch.randn(walk.z.shape, generator=torch.Generator().manual_seed(3)).double()
        )
        mine = walk.slope(problem)
    z = walk.z.clone().requires_grad_()
    logits = torch.where(at.one_hot & (problem.feasible.hi <= 0), -math.inf, z)
    parts = list(z.unbind(1))
    for columns in groups(at):
        soft = torch.softmax(logits[:, columns], 1)
        for i, j in enumerate(columns.tolist()):
            parts[j] = soft[:, i]
    (known,) = torch.autograd.grad(bce(module, problem.x, torch.stack(parts, 1)), z)
    assert torch.allclose(mine, known, atol=1e-10)
    assert (mine[:, at.one_hot].abs() > 1e-6).any()


def colours() -> hf.Schema:
    """A number and a category with three levels."""
    frame = pd.DataFrame(
        {"size": [0.0, 1.0, 0.5], "colour": pd.Categorical(["r", "g", "b"], ["r", "g", "b"])}
    )
    return hf.Schema.infer(frame, bounds={"size": (0, 1)}, scaling="minmax")


def test_one_step_by_hand() -> None:
    """z = x = (0.5, r); s = softmax(1, 0, 0) and w . N(z) + b as the score; RMSprop's first step is
    10 lr sign(g)."""
    schema = colours()
    w = torch.tensor([[1.0, -2.0, 3.0, 0.5]], dtype=torch.float64)
    module = nn.Linear(4, 1).double()
    with torch.no_grad():
        module.weight.copy_(w)
        module.bias.fill_(-1.0)
    model = hf.Model.of(module, schema, classes=["no", "yes"])
    frame = pd.DataFrame({"size": [0.5], "colour": pd.Categorical(["r"], ["r", "g", "b"])})
    problem = question(model, frame)
    x = problem.x[0].numpy()
    e = np.exp(x[1:])
    s = e / e.sum()
    n = np.concatenate([x[:1], s])
    # 1 - f(N(x)), the slope of softplus(-score)
    miss = 1 / (1 + math.exp(float((w[0].numpy() * n).sum()) - 1.0))
    by_n = -miss * w[0].numpy() + 2 * 0.5 / 4 * (n - x)
    by_z = np.concatenate([by_n[:1], s * (by_n[1:] - (s * by_n[1:]).sum())])
    assert np.allclose(s, [0.57611688, 0.21194156, 0.21194156])
    for optimizer, step in (("sgd", 0.01 * by_z), ("rmsprop", 0.01 * 10 * np.sign(by_z))):
        with model.eval_mode():
            walk = SoftWalk(hf.Descent.vanilla(optimizer=optimizer, lr=0.01), problem, 0.5)
            walk.level = 0.0
            walk.descend(problem, 0)
        assert np.allclose(walk.z[0].numpy(), x - step, atol=1e-7)


def test_vanilla_has_the_settings_of_the_paper_and_changes_the_category() -> None:
    """Paper: guo2023 Baseline VanillaCF."""
    vanilla = hf.Descent.vanilla()
    assert (vanilla.relax, vanilla.optimizer, vanilla.lr, vanilla.steps) == (
        "softmax",
        "rmsprop",
        0.001,
        1000,
    )
    assert (vanilla.norm, vanilla.lam, vanilla.keep, vanilla.loss) == (
        "mse",
        0.5,
        "last",
        "cross_entropy",
    )
    assert hf.Descent().relax == hf.Descent.wachter().relax == "round"
    schema = colours()
    module = nn.Linear(4, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.1, -4.0, -4.0, 4.0]]))
        module.bias.zero_()
    model = hf.Model.of(module, schema, classes=["no", "yes"])
    frame = pd.DataFrame(
        {"size": [0.5, 0.2], "colour": pd.Categorical(["r", "g"], ["r", "g", "b"])}
    )
    for relaxed in (
        vanilla,
        hf.Descent(relax="softmax", steps=100),
        hf.Descent.wachter(relax="softmax", steps=100),
    ):
        cfs = relaxed.explain(model, frame, "yes")
        assert cfs.found.all()
        assert cfs.after["colour"].tolist() == ["b", "b"]
        rows = cfs.x_cf[:, 1:]
        assert ((rows == 0) | (rows == 1)).all()


def test_wrong_settings() -> None:
    model = hf.Model.of(nn.Linear(3, 2), hf.Schema.box(3))
    for wrong in (hf.Descent(relax="hard"), hf.Descent.scfe(relax="softmax")):
        with pytest.raises(SettingError, match="relax"):
            wrong.explain(model, torch.zeros(1, 3), 1)


def test_numbers_alone_descend_as_they_do_without() -> None:
    """No category and no grid: both relaxations are the identity."""
    model = hf.Model.of(seeded(mlp(4, (8,), 2)), hf.Schema.box(4, -2, 2), classes=["no", "yes"])
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0)).clamp(-2, 2)
    for keep in ("cheapest", "first", "last"):
        pair = [
            hf.Descent(steps=40, restarts=1, keep=keep, relax=r).explain(model, x, "yes")
            for r in ("round", "softmax")
        ]
        assert torch.allclose(pair[0].x_cf, pair[1].x_cf, atol=1e-6)
