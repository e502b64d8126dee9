"""What Counterfactual Training costs beside plain training, as ratios measured in one run.

    HOLDFAST_DATA=... python benchmarks/teaching.py [OUT.json]

An epoch is set against what it cannot do without: a plain epoch, and T passes of n rows forward and back by hand.
Circles: 3000 rows, network 2-32-2, batches of 30, n = 1000, T = 30. MNIST: 10,000 images, network 784-32-10, batches of
1000, n = 5000, T = 30. "No row matures" is the dearest case: the step is so short that all T steps are made. Medians of
repeats that take turns, of the time that this process had on a core, one thread.
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from engine import write
from holdfast.data import load
from holdfast.stack import Stack
from holdfast.train import nascent
from holdfast.train.contrast import Lesson, Terms, Training
from holdfast.train.domain import Domain
from holdfast.train.fit import Plan
from holdfast.train.recipe import Recipe

STEPS = 30
LIMITS = {
    "circles: an epoch / plain epoch and bare passes": 1.3,
    "circles, no row matures: the same": 1.3,
    "circles: five seeds as one stack / one seed": 2,
    "circles, no row matures: five seeds / one seed": 2,
    "MNIST: seconds per epoch": 6,
}


def medians(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds on a core, calls taking turns."""
    took = {name: list[float]() for name in calls}
    for _ in range(repeats + 2):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            took[name].append(time.thread_time() - start)
    return {name: sorted(values[2:])[repeats // 2] for name, values in took.items()}


def training(
    x: Tensor, y: Tensor, classes: int, batch: int, count: int, seeds: int, terms: Terms, domain: Domain, plain: bool
) -> Training:
    recipe, plan = Recipe(hidden=(32,), batch_size=batch), Plan(tuple(range(seeds)), tuple(range(seeds)))
    module = recipe.network(x.shape[1], classes)
    models = Stack.like(module, seeds)
    assert models is not None
    first = [models.named(recipe.start(module)(seed)) for seed in range(seeds)]
    models.load({name: torch.stack([f[name] for f in first]) for name in models.state()})
    lesson = Lesson(domain, kind="plain" if plain else "search", steps=STEPS, count=count)
    return Training(models, x, y, classes, plan, [terms] * seeds, lesson, recipe)


def passes(models: Stack, x: Tensor) -> Callable[[], None]:
    """T passes of rows x (M, n, d) forward and back, in parts as the search has them."""
    parts = [part.mT.contiguous() for part in x.tensor_split(max(1, -(-x.numel() // nascent.CELLS)), 1)]
    v = [torch.rand(len(x), models.sizes[-1], part.shape[2]) for part in parts]

    def run() -> None:
        for part, weights in zip(parts, v, strict=True):
            room = torch.empty_like(part)
            for _ in range(STEPS):
                models.vjp(part)[1](weights, part, room)

    return run


def figures(name: str, x: Tensor, y: Tensor, classes: int, batch: int, count: int, many: int, domain: Domain,
            repeats: int, reg: float) -> dict[str, float]:  # fmt: skip
    out = dict[str, float]()
    for case, terms in (("", Terms(tau=0.5, reg=reg)), (", no row matures", Terms(tau=0.9, lr=1e-5, div=0.0, reg=reg))):
        calls = dict[str, Callable[[], object]]()
        for seeds in sorted({1, many}):
            given = (x, y, classes, batch, count, seeds, terms, domain)
            taught, plain = training(*given, False), training(*given, True)
            calls[f"taught {seeds}"] = lambda taught=taught: taught.epoch(0)
            calls[f"plain {seeds}"] = lambda plain=plain: plain.epoch(0)
            calls[f"bare {seeds}"] = passes(taught.models, x[:count].expand(seeds, -1, -1))
        took = medians(calls, repeats)
        same = "an epoch / plain epoch and bare passes" if not case else "the same"
        out[f"{name}{case}: {same}"] = took["taught 1"] / (took["plain 1"] + took["bare 1"])
        if many > 1:
            stack = "five seeds as one stack / one seed" if not case else "five seeds / one seed"
            out[f"{name}{case}: {stack}"] = took[f"taught {many}"] / took["taught 1"]
        elif not case:
            out[f"{name}: seconds per epoch"] = took["taught 1"]
    return out


def main() -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        data = load("circles", n=3000)
        x, y = torch.tensor(data.X.to_numpy()).float(), torch.tensor((data.y == "yes").to_numpy()).long()
        found = figures("circles", x, y, 2, 30, 1000, 5, Domain.of(x), 25, 0.5)
        images = load("mnist").part("train").take(range(10_000))
        x = torch.tensor(images.X).flatten(1).float() / 127.5 - 1
        y, one = torch.tensor(images.y.to_numpy(int)), torch.ones(784, 1)
        none = torch.zeros(0, dtype=torch.int64)
        found |= figures("MNIST", x, y, 10, 1000, 5000, 1, Domain(-one, one, none, none, none), 7, 0.01)
    write(found, LIMITS, sys.argv[1] if len(sys.argv) > 1 else None)


if __name__ == "__main__":
    main()
