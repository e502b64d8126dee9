"""The contract of every method for images: pairs of an image and a wanted class go in, and the same
pairs come out.

As for tables, a subclass is a dataclass whose fields are its settings, and defines `search`. What
an image may become is decided here: values stay between 0 and 1, locked pixels keep every bit, and
the bare model judges what comes back.
"""

import time
import warnings
from abc import abstractmethod
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self, cast, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from holdfast._core.progress import Progress
from holdfast._core.row_random import RowRandom
from holdfast._core.rows import limited_threads, per_row
from holdfast._core.types import Outcomes
from holdfast._core.version import version
from holdfast.counterfactuals import Run
from holdfast.errors import SettingError, TargetError
from holdfast.explainer import Method
from holdfast.images.model import ImageModel, ImageModelLike, ImagesLike, as_images, words
from holdfast.images.result import ImageCounterfactuals
from holdfast.problem import TimeBudget, check_limits
from holdfast.target import BoundTarget, Status, Target, TargetLike


@dataclass(frozen=True)
class ImageSearchProblem:
    """The questions of n pairs of an image and a wanted class to one model.

    >>> import holdfast as hf
    >>> list(hf.images.ImageSearchProblem.__annotations__)
    ['model', 'x', 'goal', 'free', 'rng', 'budget', 'batch_size']
    """

    model: ImageModel
    x: Tensor  # (n, c, h, w)
    goal: BoundTarget
    free: Tensor  # (n, c, h, w) which values may change
    rng: RowRandom
    budget: TimeBudget
    batch_size: int  # how many pairs may be worked on at once

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Tensor) -> "ImageSearchProblem":
        parts = self.x[rows], self.goal[rows], self.free[rows], self.rng[rows]
        return ImageSearchProblem(self.model, *parts, self.budget, self.batch_size)


@dataclass(frozen=True)
class ImageFound:
    """What a search found."""

    x: Tensor  # (n, c, h, w)
    iterations: Tensor  # (n,) steps until the goal was met, or all of them
    passes: int = 0  # images that went forward and backward through the model, over all steps
    # (n,) pairs that the time budget cut short; None: all, if it was used up
    out_of_time: Tensor | None = None

    def ran_out(self, budget: TimeBudget) -> Tensor:
        """(n,) pairs that the time budget cut short."""
        if self.out_of_time is not None:
            return self.out_of_time
        return torch.full((len(self.x),), budget.ran_out)


class ImageExplainer(Method):
    """A way to find counterfactual images. Subclasses are dataclasses: fields are the settings.

    >>> import holdfast as hf
    >>> issubclass(hf.DeDUCE, hf.images.ImageExplainer)
    True
    """

    # how likely the wanted class must become; None: likelier than any other
    min_probability: float | None = None

    @abstractmethod
    def search(self, problem: ImageSearchProblem) -> ImageFound:
        """Images with the wanted class, where some were found; only values that are free may
        differ."""

    def fit(
        self, model: ImageModelLike, images: ImagesLike, labels: Outcomes | None = None
    ) -> Self:
        """Learn what the method needs from data (learnt attributes end in _); some need nothing."""
        return self

    @final
    def explain(
        self,
        model: ImageModelLike,
        images: ImagesLike,
        target: TargetLike = None,
        *,
        labels: Outcomes | None = None,
        locked: npt.ArrayLike | Tensor | None = None,
        seed: int = 0,
        batch_size: int = 128,
        time_budget: float | None = None,
        threads: int = 0,
        progress: bool = False,
    ) -> ImageCounterfactuals:
        """Find, for every image, one of the wanted class that differs as little as the method can
        manage.

        Args:
            model: an `ImageModel`, a fitted network such as `SpectralResNet`, or what
                `ImageModel.of` takes.
            images: n images; bytes, or numbers from 0 to 1, (n, h, w) or (n, c, h, w).
            target: a class for all images, one per image, a `Target`, "all" for every class but an
                image's own, or None for the likeliest other one.
            labels: the images' own classes, which "all" leaves out and tables and pictures name;
                by default what the model says.
            locked: pixels that may not change: booleans (h, w), (c, h, w) or (n, c, h, w).
            seed: random numbers are derived from it and the contents of each image alone.
            batch_size: pairs worked on at once, which bounds the memory; answers do not depend on
                it.
            time_budget: seconds for the whole call; pairs still open then come back as not found.
            threads: how many threads torch may use meanwhile; 0 keeps your setting.
            progress: show a bar on stderr.
        """
        net = ImageModel.of(model)
        self._check_call(net, seed, batch_size, time_budget)
        budget = TimeBudget(time_budget, Progress(progress, type(self).__name__))
        given = as_images(images, net.size)
        with net.eval_mode(), limited_threads(threads), budget.bar:
            now = net.scores(given)
            own = now.argmax(1) if labels is None else _places(net, labels, len(now))
            goal, source = self._goal(net, now, target, own)
            free = _free(locked, given)
            x = given[source]
            now = now[source]
            free = free[source]
            done = goal.met(now)
            rows = (~done).nonzero().squeeze(1)
            budget.bar.total(max(1, len(rows)))
            problem = ImageSearchProblem(
                net, x, goal, free, RowRandom.of(seed, x), budget, batch_size
            )
            # A pair whose target is met from the start is not searched: it stays as it is.
            found = self._searched(problem, rows)
            scores = net.scores(found.x)
        searched = torch.where(goal.met(scores), int(Status.FOUND), int(Status.NOT_FOUND))
        codes = torch.where(done, int(Status.ALREADY_MET), searched)
        run = self._run(net, target, seed, time.perf_counter() - budget.start)
        return ImageCounterfactuals(
            x=x,
            x_cf=found.x,
            scores=scores,
            goal=goal,
            status_codes=codes.numpy(),
            reasons=self._reasons(codes, goal.value(scores), found.ran_out(budget), budget),
            source=source.numpy(),
            own=own[source].numpy(),
            iterations=found.iterations.numpy(),
            passes=found.passes,
            classes=net.classes,
            run=run,
        )

    def _searched(self, problem: ImageSearchProblem, rows: Tensor) -> ImageFound:
        """What the search makes of some pairs, put among all of them: the others stay as they
        were."""
        n = len(problem)
        x_cf = problem.x.clone()
        iterations = torch.zeros(n, dtype=torch.int64)
        out_of_time = torch.zeros(n, dtype=torch.bool)
        if not len(rows):
            return ImageFound(x_cf, iterations, 0, out_of_time)
        found = self.search(problem[rows])
        # A search that overflowed has no answer: inf, NaN or values out of bounds are not an image.
        is_image = ((found.x >= 0) & (found.x <= 1)).flatten(1).all(1)
        may_change = per_row(is_image, found.x) & problem.free[rows]
        x_cf[rows] = torch.where(may_change, found.x, problem.x[rows])
        iterations[rows] = found.iterations
        out_of_time[rows] = found.ran_out(problem.budget)
        return ImageFound(x_cf, iterations, found.passes, out_of_time)

    def _check_call(
        self, model: ImageModel, seed: int, batch_size: int, time_budget: float | None
    ) -> None:
        check_limits(seed, batch_size, time_budget)
        name = type(self).__name__
        self.check_finite()
        likely = self.min_probability is None or 0 < self.min_probability < 1
        if not likely:
            raise SettingError(
                f"min_probability must lie between 0 and 1, got {self.min_probability}"
            )
        if self.needs_data and not self.is_fitted:
            raise SettingError(f"{name} needs data; call .fit(model, images, labels) first")
        self.check(model)

    def _goal(
        self, model: ImageModel, now: Tensor, target: Any, own: Tensor
    ) -> tuple[BoundTarget, Tensor]:
        """The goal of every pair, and which image each pair is about."""
        asked = Target.of(target)
        n, k = now.shape
        source = torch.arange(n)
        if isinstance(asked.label, str) and asked.label == "all" and "all" not in model.classes:
            others = torch.ones(n, k, dtype=torch.bool).scatter_(1, own[:, None], False)
            source, wanted = others.nonzero().T
        elif asked.label is None:
            wanted = now.scatter(1, now.argmax(1, keepdim=True), -torch.inf).argmax(1)
        else:
            one = isinstance(asked.label, str) or np.ndim(cast(Any, asked.label)) == 0
            wanted = _places(model, cast(Outcomes, [asked.label] * n if one else asked.label), n)
        if asked.probability is None and not asked.margin and self.min_probability is not None:
            asked = replace(asked, probability=self.min_probability)
        soft = asked.probability is not None
        p = asked.probability or 0.5
        return BoundTarget(
            wanted, 1.0, float(np.log(p / (1 - p))) if soft else asked.margin, soft, k
        ), source

    def _reasons(
        self, codes: Tensor, probability: Tensor, out_of_time: Tensor, budget: TimeBudget
    ) -> list[str]:
        def why(code: int, p: float, cut_short: bool) -> str:
            if code != Status.NOT_FOUND:
                return "" if code == Status.FOUND else "the model gives the wanted class already"
            if cut_short:
                return f"the time budget of {budget.seconds or 0:g} s was used up; give more time"
            return f"the best attempt has probability {p:.2f}; {self.advice}"

        columns: list[list[Any]] = [
            cast(Any, t).tolist() for t in (codes, probability, out_of_time)
        ]
        return [why(*row) for row in zip(*columns, strict=True)]

    def _run(self, model: ImageModel, target: Any, seed: int, seconds: float) -> Run:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        about = f"images of {words(model.size)}"
        wanted = str(Target.of(target))
        return Run(
            type(self).__name__,
            repr(self),
            wanted,
            seed,
            seconds,
            model.fingerprint(),
            about,
            version(),
            now,
        )


def _places(model: ImageModel, labels: Outcomes, n: int) -> Tensor:
    """(n,) numbers of classes."""
    shape = np.shape(cast(Any, labels))
    if len(shape) != 1:
        raise TargetError(f"expected one class per image, ({n},) in all, got shape {shape}")
    given: list[Any] = cast(Any, labels).tolist() if hasattr(labels, "tolist") else list(labels)
    if len(given) != n:
        raise TargetError(f"{len(given)} classes for {n} images; give one class, or one per image")
    place = {label: model.place(label) for label in dict.fromkeys(given)}
    return torch.tensor([place[label] for label in given], dtype=torch.int64)


def _free(locked: Any, x: Tensor) -> Tensor:
    """(n, c, h, w) which values may change."""
    if locked is None:
        return torch.ones_like(x, dtype=torch.bool)
    mask = torch.as_tensor(locked if isinstance(locked, Tensor) else np.asarray(locked))
    if mask.dtype != torch.bool:
        raise SettingError(
            f"locked must be booleans, true where nothing may change, got {mask.dtype}"
        )
    try:
        free = ~mask.expand_as(x)
    except RuntimeError:
        wanted = words(cast(Any, tuple(x.shape[1:])))
        raise SettingError(
            f"locked has shape {tuple(mask.shape)}, which does not fit images of {wanted}"
        ) from None
    if not bool(free.flatten(1).any(1).all()):
        warnings.warn("locked leaves nothing free to change in some images", stacklevel=3)
    return free
