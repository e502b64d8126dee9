"""Training in stretches of a few minutes, and how what was trained answers.

What is trained lies beside the parts of a cell, so that cells which ask the same networks share
them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

import holdfast as hf
from experiments.cell import plain
from experiments.guo2023.measure import RAW, Answers, harden
from experiments.guo2023.task import Task, prepare
from experiments.parts import Arrays, Parts
from holdfast.methods.amortized._generator_loop import GeneratorKind, GeneratorStack, fit_generators
from holdfast.methods.amortized._joint_classifier import as_model
from holdfast.methods.amortized._joint_loop import JointStack, fit_joint
from holdfast.methods.amortized._joint_settings import JointSettings
from holdfast.methods.amortized._parallel import Checkpoint
from holdfast.nn.stack_derivatives import Weights

# Epochs of a stretch on the loans: plain, and against an attack; other data take one stretch.
STRETCHES = {False: 10, True: 2}
RANDOM = 0.1  # how far VanillaCF-Random moves a row at most
FOLDER = "networks"


@dataclass(frozen=True)
class Where:
    """What networks are trained on.

    Args:
        dataset, seed: as a cell has them.
        share: of the training rows.
    """

    dataset: str
    seed: int
    share: float = 1.0

    @property
    def task(self) -> Task:
        return prepare(self.dataset, self.share)

    @property
    def alike(self) -> dict[str, Any]:
        """What all trainings are called with: rows and seed of each subset's network, one
        thread."""
        task = self.task
        return {"tables": task.train, "seeds": [self.seed] * len(task), "workers": 1}

    def ends(self, epochs: int, *, attacked: bool) -> list[int]:
        """The last epoch of each stretch of training."""
        long = STRETCHES[attacked] if self.dataset == "sba_loan" else epochs
        return [*range(long, epochs, long), epochs]


S = TypeVar("S", JointStack, GeneratorStack)


def train(
    parts: Parts,
    name: str,
    where: Where,
    how: JointSettings | GeneratorKind,
    fit: Callable[[Checkpoint], S],
) -> tuple[S, float]:
    """A network for each subset, and the seconds that training took."""
    shared = parts.beside(FOLDER)
    about = [plain(how), where.dataset, where.seed, where.share]
    end = Checkpoint(0)
    seconds = 0.0
    for until in where.ends(how.epochs, attacked=how.shift is not None):
        begun = replace(end, until=until)

        def stretch(begun: Checkpoint = begun) -> Arrays:
            fit(begun)
            return {f"{i}": held.numpy() for i, held in enumerate(begun.tensors)}

        arrays = shared.arrays(f"{name} to epoch {until}", stretch, [*about, until])
        seconds += float(arrays.pop("seconds"))
        held = [torch.tensor(arrays[f"{i}"]) for i in range(len(arrays))]
        end = Checkpoint(until, until, held)
    return fit(end), seconds  # which trains no more


def joint(parts: Parts, name: str, how: JointSettings, where: Where) -> tuple[JointStack, float]:
    """Networks that predict and answer, or only predict."""
    task = where.task
    settings = how.checked()

    def fit(checkpoint: Checkpoint) -> JointStack:
        return fit_joint(
            settings,
            task.x,
            task.y,
            task.encoding,
            checkpoint=checkpoint,
            **where.alike,
        )

    return train(parts, name, where, settings, fit)


def generators(
    parts: Parts, name: str, kind: GeneratorKind, base: JointStack, where: Where
) -> tuple[GeneratorStack, float]:
    """Networks that answer for the base networks."""
    task = where.task

    def fit(checkpoint: Checkpoint) -> GeneratorStack:
        return fit_generators(
            kind,
            base.net,
            base.theta,
            task.x,
            task.y,
            task.encoding,
            checkpoint=checkpoint,
            **where.alike,
        )

    return train(parts, name, where, kind, fit)


# ---- how they predict and answer


@dataclass(frozen=True)
class Predictors:
    """What networks say of rows."""

    stack: JointStack

    def scores(self, models: Tensor, x: Tensor) -> Tensor:
        """(m, n) does each predict class 1?"""
        return self.stack.pick(models).scores(x).squeeze(2) > 0

    def logits(self, i: int, x: Tensor) -> Tensor:
        """(n,) of one of them."""
        return self.stack.pick(torch.tensor([i])).scores(x[None])[0, :, 0]

    def answers(self, i: int, x: Tensor) -> Tensor:
        """(n, d) of one of them, before N."""
        return self.stack.pick(torch.tensor([i])).answers(x[None])[0]


def of_networks(task: Task, stack: JointStack) -> Answers:
    """What networks propose to the test rows of their subset."""
    predictors = Predictors(stack)

    def answers(convention: str, i: int) -> Tensor:
        return harden(predictors.answers(i, task.asked(i)), task, convention)

    return answers


def of_generators(task: Task, base: JointStack, made: GeneratorStack, seed: int) -> Answers:
    """What generators propose for the base networks."""
    predictors = Predictors(base)

    def answers(convention: str, i: int) -> Tensor:
        x = task.asked(i)
        t = (predictors.logits(i, x) <= 0).to(x.dtype)[None, :, None]
        thetas = [Weights(theta.flat[i : i + 1], theta.sizes) for theta in made.thetas]
        noise = None
        if isinstance(made.kind, hf.VAECF):
            drawn = torch.Generator().manual_seed(1000 * seed + i)
            noise = torch.randn(1, len(x), made.kind.latent, generator=drawn)
        one = GeneratorStack(made.kind, made.classes, made.nets, thetas)
        raw = one.answers(x[None], t, task.encoding, noise)[0]
        return harden(raw, task, convention)

    return answers


@dataclass(frozen=True)
class Search:
    """A method that searches anew for every row.

    Args:
        group, make: its name, and how it is made.
        rows: how many test rows of each subset it is asked about; None: all.
    """

    group: str
    make: Callable[[], hf.Explainer]
    rows: int | None

    def answers(self, parts: Parts, where: Where, base: JointStack, how: JointSettings) -> Answers:
        """What it finds for the base networks; each subset is a part."""
        task = where.task
        about = [plain(how), repr(self.make()), self.rows, where.seed]

        def answers(convention: str, i: int) -> Tensor:
            def make() -> Arrays:
                schema = task.unlimited if convention == RAW else task.schema
                model, _ = as_model(base, i, how.dropout, schema, [0, 1])
                x = task.asked(i, self.rows)
                start = self._start(task, x, convention, 1000 * where.seed + i)
                wanted = 1 - Predictors(base).scores(torch.tensor([i]), x)[0].long()
                method = self.make().fit(model, schema.decode(task.x[task.train[i]]))
                found = method.explain(model, schema.decode(start), wanted, seed=where.seed)
                return {"answers": found.x_cf.float().numpy()}

            name = f"{self.group} {convention} {task.names[i]}"
            return torch.tensor(parts.arrays(name, make, about)["answers"])

        return answers

    def _start(self, task: Task, x: Tensor, convention: str, seed: int) -> Tensor:
        """Where it starts: at the rows, or near them; categories stay."""
        if not self.group.endswith("random"):
            return x
        drawn = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed))
        moved = torch.where(task.encoding.one_hot, x, x + RANDOM * (2 * drawn - 1))
        return harden(moved, task, convention)
