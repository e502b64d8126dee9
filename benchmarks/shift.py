"""How fast Virtual Data Shift, joint training, recourse in one pass and ROAR-LIME are, as ratios
measured in one run.

    HOLDFAST_DATA=... python -m benchmarks.shift [OUT.json]

The task: SBA loans as RoCourseNet encodes them (110 columns), its network 110-200-10-10-1, batches
of 128 rows. Medians of repeats that take turns, one thread; only the sixteen years train on all
cores, in both ways: as one stack on several threads, and one after another with torch's own threads
or on one, whichever is faster.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

import holdfast as hf
from benchmarks.engine import out_file, write
from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast.methods import _local_linear as lime
from holdfast.methods.amortized._joint_loop import fit_joint
from holdfast.methods.amortized._joint_settings import JointSettings
from holdfast.methods.amortized._parallel import by_seed
from holdfast.methods.amortized.virtual_shift import B1, B2, EPS, ROOT, Attack, Batch, Shift
from holdfast.nn.architecture import flat_layers
from holdfast.nn.stack_derivatives import Leaky
from holdfast.problem import SearchProblem, TimeBudget
from holdfast.schema.encoding import Encoding
from holdfast.target import Target

SIZES = 110, 200, 10, 10, 1
ROWS = 128
YEARS = 16
# One epoch of the paper's training.
PAPER = JointSettings(
    epochs=1, condition_on_target=False, clip_to_data=False, hard_categories=False
)
BATCHES = 6
LIMITS = {
    "Virtual Data Shift / autograd through the steps": 0.5,
    "sixteen years as one stack / one after another": 0.5,
    "recourse for 10,000 encoded rows / one forward pass": 2,
    "ROAR-LIME / evaluating its 5,000 neighbours": 2,
}


def medians(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds by the clock on the wall, calls taking turns."""
    for call in calls.values():
        call()
    took = {name: list[float]() for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            took[name].append(time.perf_counter() - start)
    return {name: sorted(values)[repeats // 2] for name, values in took.items()}


# ---- Virtual Data Shift


def by_autograd(
    theta: list[Tensor], x: Tensor, y: Tensor, x_cf: Tensor, t: Tensor, shift: Shift
) -> Tensor:
    """What one would write by hand: create_graph through the inner steps, Adam written out; no
    stack."""

    def logit(parts: list[Tensor], rows: Tensor) -> Tensor:
        h = rows
        for w, b in zip(parts[:-2:2], parts[1:-2:2], strict=True):
            h = nn.functional.leaky_relu(torch.addmm(b, h, w), 0.01)
        return torch.addmm(parts[-1], h, parts[-2])

    delta = (2 * torch.rand_like(x) - 1) * shift.epsilon
    count = 0
    m = [torch.zeros_like(w) for w in theta]
    v = [torch.zeros_like(w) for w in theta]
    for _ in range(shift.outer):
        delta = delta.detach().requires_grad_()
        now = [w.detach().requires_grad_() for w in theta]
        for _ in range(shift.inner):
            loss = (torch.sigmoid(logit(now, x + delta)) - y).square().mean()
            slopes = torch.autograd.grad(loss, now, create_graph=True)
            count += 1
            m = [B1 * a + (1 - B1) * g for a, g in zip(m, slopes, strict=True)]
            v = [B2 * a + (1 - B2) * g * g for a, g in zip(v, slopes, strict=True)]
            roots = [(b / (1 - B2**count) + ROOT).sqrt() + EPS for b in v]
            now = [
                w - shift.eta * (a / (1 - B1**count)) / r
                for w, a, r in zip(now, m, roots, strict=True)
            ]
        lost = (torch.sigmoid(logit(now, x_cf)) - t).square().sum()
        (slope,) = torch.autograd.grad(lost, delta)
        step = 2.5 * shift.epsilon / shift.outer
        delta = (delta + step * slope.sign()).clamp(-shift.epsilon, shift.epsilon)
        theta = [w.detach() for w in now]
        m = [w.detach() for w in m]
        v = [w.detach() for w in v]
    return theta[0]


def shifts(layout: Encoding, x: Tensor, y: Tensor) -> dict[str, float]:
    net = Leaky(SIZES)
    g = torch.Generator().manual_seed(0)
    parts = [
        (torch.randn(1, a, b, generator=g) * (2 / a) ** 0.5, torch.zeros(1, 1, b))
        for a, b in itertools.pairwise(SIZES)
    ]
    theta = net.load(net.weights(1), parts)
    plain = [value[0] if i == 0 else value[0, 0] for pair in parts for i, value in enumerate(pair)]
    rows = x[:ROWS]
    answers = x[ROWS : 2 * ROWS]
    classes = y[:ROWS, None].float()
    w = torch.full((1, ROWS, 1), 1 / ROWS)
    batch = Batch(rows[None], classes[None], w, answers[None], 1 - classes[None], w)
    calls: dict[str, Callable[[], object]] = {
        "autograd": lambda: by_autograd(plain, rows, classes, answers, 1 - classes, Shift())
    }
    for categories in ("none", "softmax"):
        attack = Attack(net, theta, Shift(categories=categories), layout)
        calls[categories] = lambda attack=attack: attack(theta, batch, by_seed([0]), 0, 0.1)
    with torch.no_grad():
        took = medians(
            {k: torch.enable_grad()(f) if k == "autograd" else f for k, f in calls.items()}, 15
        )
    return {
        "one step of Virtual Data Shift (ms)": took["none"] * 1e3,
        "Virtual Data Shift / autograd through the steps": took["none"] / took["autograd"],
        "the same with the authors' softmax": took["softmax"] / took["autograd"],
    }


# ---- joint training


def epochs(layout: Encoding, x: Tensor, y: Tensor, tables: list[Tensor]) -> dict[str, float]:
    """RoCourseNet's epoch against CounterNet's, and the years together against one after
    another."""
    some = [rows[: ROWS * BATCHES] for rows in tables]
    plain = PAPER
    robust = replace(PAPER, shift=Shift())

    def one_by_one(how: JointSettings) -> None:
        for rows in some:
            fit_joint(how, x, y, layout, tables=[rows], seeds=[0], workers=1)

    took = medians(
        {
            "CounterNet": lambda: fit_joint(plain, x, y, layout, tables=some, seeds=[0] * YEARS),
            "RoCourseNet": lambda: fit_joint(robust, x, y, layout, tables=some, seeds=[0] * YEARS),
            "CounterNet, one after another": lambda: one_by_one(plain),
            "RoCourseNet, one after another": lambda: one_by_one(robust),
        },
        5,
    )
    return {
        "sixteen years as one stack (ms per batch and year)": took["RoCourseNet"]
        / YEARS
        / BATCHES
        * 1e3,
        "sixteen years as one stack / one after another": took["RoCourseNet"]
        / took["RoCourseNet, one after another"],
        "the same for CounterNet": took["CounterNet"] / took["CounterNet, one after another"],
        "RoCourseNet's epoch / CounterNet's (the paper: 1.46)": took["RoCourseNet"]
        / took["CounterNet"],
    }


# ---- answers


def asked(model: hf.Model, x: Tensor) -> SearchProblem:
    goal = Target.of(None).bind(model, model(x))
    budget = TimeBudget(None, Progress(False, ""))
    return SearchProblem(model, x, goal, model.schema.feasible(x), RowRandom.of(0, x), budget)


def one_pass(net: hf.RoCourseNet, table: object, x: Tensor) -> dict[str, float]:
    model = net.model_
    generator = net.recourse_.generator_
    layers = flat_layers(model.module)

    def bare() -> Tensor:
        h = x
        seen = list[Tensor]()
        for i, layer in enumerate(layers):
            h = layer(h)
            if i in generator.features:
                seen.append(h)
        if generator.target_columns:
            seen.append(torch.zeros(len(x), generator.target_columns))
        return generator.layers(torch.cat(seen, 1))

    with model.eval_mode():
        problem = asked(model, x)
        took = medians({"bare": bare, "recourse": lambda: net.recourse_.search(problem)}, 31)
    whole = medians({"call": lambda: net.recourse(table)}, 5)
    return {
        "one forward pass over 10,000 rows (ms)": took["bare"] * 1e3,
        "recourse for 10,000 encoded rows / one forward pass": took["recourse"] / took["bare"],
        "recourse for a table of 10,000 rows, all told (ms)": whole["call"] * 1e3,
    }


def planes(model: hf.Model, table: object, x: Tensor) -> dict[str, float]:
    """ROAR-LIME on 64 rows; the neighbours are evaluated in the same portions."""
    method = hf.ROAR.lime().fit(model, table)
    with model.eval_mode():
        problem = asked(model, x[:64])
        shares = lime.shares_of(x, model.schema.encoding(model.dtype))
        draw = lime.Neighbors.of(problem.feasible.encoding, shares, 0.1)
        room = torch.empty(8, 5000, x.shape[1])
        draw.draw(problem[torch.arange(8)], room)
        portions = room.flatten(0, 1).split(lime.rows_at_once(x.shape[1]))

        def bare() -> None:
            for _ in range(8):
                for rows in portions:
                    model(rows)

        took = medians({"bare": bare, "roar": lambda: method.search(problem)}, 7)
    return {
        "ROAR-LIME (ms per row)": took["roar"] / 64 * 1e3,
        "ROAR-LIME / evaluating its 5,000 neighbours": took["roar"] / took["bare"],
    }


def measure() -> dict[str, float]:
    data = hf.datasets.load("sba_loan", rocoursenet=True)
    schema = data.schema
    x = schema.encode(data.X)
    y = torch.tensor((data.y == "paid").to_numpy(), dtype=torch.int64)
    layout = schema.encoding()
    tables = [
        torch.tensor((data.parts == year).to_numpy().nonzero()[0])
        for year in sorted(data.parts.unique())
    ]
    out = shifts(layout, x, y) | epochs(layout, x, y, tables)
    some = data.take(
        torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:10_000].numpy()
    )
    net = hf.RoCourseNet(epochs=3, shift=Shift(outer=0)).fit(some.X, some.y, schema=schema)
    encoded = schema.encode(some.X)
    return out | one_pass(net, some.X, encoded) | planes(net.model_, some.X, encoded)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    write(measure(), LIMITS, out_file(__file__))
