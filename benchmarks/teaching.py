"""What Counterfactual Training costs beside plain PyTorch, as ratios measured in one run.

    HOLDFAST_DATA=... python -m benchmarks.teaching [OUT.json]

The unit of an epoch with n counterfactuals of T steps is what PyTorch takes, with the same network
as an nn.Module, for

    a plain epoch, and T passes of n rows at once forward and back, with gradients by the rows alone

Circles: 3000 rows, network 2-32-2, batches of 30, n = 1000, T = 30. MNIST: 10,000 images, network
784-32-10, batches of 1000, n = 5000, T = 30; 100 epochs of either. Epochs are measured

    at first          after two: hardly a row matures, so nearly all steps are made
    no row matures    all steps are made, as they are too short
    at last           after all: rows mature in a few steps, and leave the batch

Beside the ratio there are two others, without a limit: to a unit that also has the 3 n rows that an
epoch learns from, and to one whose passes are those of rows that have not stopped. Medians of
repeats that take turns, of the time that this process had on a core, one thread.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.engine import bare_pass, out_file, write
from holdfast.datasets import load
from holdfast.nn.architecture import mlp
from holdfast.nn.stack import Stack
from holdfast.retraining.loop import Variation
from holdfast.retraining.recipe import Recipe
from holdfast.training.counterfactual import search
from holdfast.training.counterfactual.domain import Domain
from holdfast.training.counterfactual.objective import (
    COLUMNS,
    Contrast,
    ContrastTraining,
    SharedSettings,
    Variant,
)

STEPS = 30
EPOCHS = 100
LIMITS = {
    "circles at first: an epoch (units)": 1.3,
    "circles, no row matures: an epoch (units)": 1.3,
    "circles at first: five seeds as one stack / one seed": 2,
    "circles, no row matures: five seeds as one stack / one seed": 2,
    "MNIST at first: an epoch (units)": 1.3,
    "MNIST, no row matures: an epoch (units)": 1.3,
    "MNIST: mean of all epochs (units)": 1.3,
    "MNIST: minutes for all epochs": 10,
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


@dataclass(frozen=True)
class Task:
    name: str
    x: Tensor
    y: Tensor
    classes: int
    batch: int
    count: int
    domain: Domain
    reg: float
    repeats: int

    @property
    def usual(self) -> Variant:
        return Variant(tau=0.5, reg=self.reg)

    def training(self, variant: Variant, seeds: int = 1) -> ContrastTraining:
        recipe = Recipe(hidden=(32,), batch_size=self.batch)
        each = tuple(range(seeds))
        module = recipe.network(self.x.shape[1], self.classes)
        models = Stack.like(module, seeds)
        assert models is not None
        first = [models.named(recipe.start(module)(seed)) for seed in range(seeds)]
        models.load({name: torch.stack([f[name] for f in first]) for name in models.state()})
        shared = SharedSettings(self.domain, steps=STEPS, count=self.count)
        variants = [variant] * seeds
        seeded = Variation(each, each)
        contrast = Contrast(self.x, self.y, self.classes, seeded, variants, shared, recipe)
        return ContrastTraining(models, contrast)

    def plain(self, more: int = 0) -> Callable[[], None]:
        """An epoch in PyTorch, with some more rows in every batch."""
        net = mlp(self.x.shape[1], (32,), self.classes)
        adam = torch.optim.Adam(net.parameters())
        extra = torch.randperm(len(self.x))[:more]

        @torch.enable_grad()
        def run() -> None:
            for rows in torch.randperm(len(self.x)).split(self.batch):
                rows = torch.cat([rows, extra]) if more else rows
                adam.zero_grad()
                nn.functional.cross_entropy(net(self.x[rows]), self.y[rows]).backward()
                adam.step()

        return run

    def bare(self) -> Callable[[], None]:
        """T passes in PyTorch."""
        net = mlp(self.x.shape[1], (32,), self.classes).requires_grad_(False)
        rows = self.x[: self.count]
        wanted = torch.randint(self.classes, (self.count,))

        @torch.enable_grad()
        def run() -> None:
            for _ in range(STEPS):
                bare_pass(net, rows, wanted)

        return run

    def units(self) -> dict[str, Callable[[], object]]:
        return {
            "plain": self.plain(),
            "more": self.plain(3 * self.count * self.batch // len(self.x)),
            "bare": self.bare(),
        }


def again(training: ContrastTraining) -> Callable[[], Tensor]:
    """An epoch of networks that are, each time, as they are now."""
    state = [held.clone() for held in training.optimizer.held]

    def run() -> Tensor:
        for held, value in zip(training.optimizer.held, state, strict=True):
            held.copy_(value)
        return training.epoch(0)

    return run


def early(task: Task, seeds: int) -> dict[str, float]:
    """Epochs in which hardly a row matures, and in which none does."""
    out = dict[str, float]()
    for case, variant in (
        (f"{task.name} at first", task.usual),
        (f"{task.name}, no row matures", Variant(tau=0.9, lr=1e-5, div=0.0, reg=task.reg)),
    ):
        calls = task.units()
        for many in sorted({1, seeds}):
            training = task.training(variant, many)
            for epoch in range(2):
                training.epoch(epoch)
            calls[str(many)] = again(training)
        took = medians(calls, task.repeats)
        out[f"{case}: an epoch (units)"] = took["1"] / (took["plain"] + took["bare"])
        out[f"{case}: an epoch (units with 3 n rows)"] = took["1"] / (took["more"] + took["bare"])
        if seeds > 1:
            out[f"{case}: five seeds as one stack / one seed"] = took[str(seeds)] / took["1"]
    return out


def late(task: Task) -> dict[str, float]:
    """All epochs, and one more like the last."""
    training = task.training(task.usual)
    start = time.thread_time()
    for epoch in range(EPOCHS):
        training.epoch(epoch)
    whole = time.thread_time() - start
    epoch = again(training)
    left = search.LEFT
    steps = float(epoch()[0, COLUMNS.index("steps")])

    def uncompacted() -> None:
        search.LEFT = -1.0
        epoch()
        search.LEFT = left

    took = medians({**task.units(), "epoch": epoch, "uncompacted": uncompacted}, task.repeats)
    case = f"{task.name} at last"
    fewer = took["bare"] * steps / STEPS
    return {
        f"{task.name}: mean of all epochs (units)": whole / EPOCHS / (took["plain"] + took["bare"]),
        f"{task.name}: minutes for all epochs": whole / 60,
        f"{case}: an epoch (units)": took["epoch"] / (took["plain"] + took["bare"]),
        f"{case}: steps of a row": steps,
        f"{case}: an epoch (units of rows on their way)": took["epoch"] / (took["plain"] + fewer),
        f"{case}: an epoch (such units with 3 n rows)": took["epoch"] / (took["more"] + fewer),
        f"{case}: rows leave the batch / they do not": took["epoch"] / took["uncompacted"],
    }


def main() -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        data = load("circles", n=3000)
        x = torch.tensor(data.X.to_numpy()).float()
        y = torch.tensor((data.y == "yes").to_numpy()).long()
        circles = Task("circles", x, y, 2, 30, 1000, Domain.of(x), 0.5, 25)
        images = load("mnist").part("train").take(range(10_000))
        x = torch.tensor(images.X).flatten(1).float() / 127.5 - 1
        y = torch.tensor(images.y.to_numpy(int))
        one = torch.ones(784, 1)
        none = torch.zeros(0, dtype=torch.int64)
        mnist = Task("MNIST", x, y, 10, 1000, 5000, Domain(-one, one, none, none, none), 0.01, 9)
        found = early(circles, 5) | late(circles) | early(mnist, 1) | late(mnist)
    write(found, LIMITS, out_file(__file__))


if __name__ == "__main__":
    main()
