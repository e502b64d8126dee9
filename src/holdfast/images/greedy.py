"""One greedy engine for counterfactual images: change the pixel that matters most, look again,
until the class is met.

    x = x0;  P = 0;  M = 0                           P: steps per pixel,  M: accumulated gradient
    for k = 0, 1, .. max_iter - 1:
        stop if the wanted class is likely enough    (per pair; what is met from the start is
                                                      never touched)
        g = gradient of a loss to be minimised;      g = 0 where a pixel is locked
        I = the q pixels of largest priority |g|     (first of several equal ones)
        M = g + m M
        x_I = clip(x_I - delta sign(M_I), 0, 1)
        P_I = P_I + 1

A method defines the loss (`look`), when a pixel is locked, and when to stop: DeDUCE, JSMA and the
greedy ensemble differ in nothing else. The algorithm printed in DeDUCE adds the step; with its
gradients that would climb the loss, and its authors' code also subtracts it.

Pairs are worked on in slots. A finished pair leaves its slot to the next one in the queue, so the
batch stays full until the queue is empty, and then shrinks. An exact shortcut saves passes: a
chosen pixel that cannot move, being at the bound already, would be chosen again until it is locked,
since nothing changes; its steps are counted and the next pixel is taken at once.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast._core.checks import require_integer
from holdfast.errors import SettingError
from holdfast.images.explainer import ImageExplainer, ImageFound, ImageSearchProblem
from holdfast.images.model import ImageModel
from holdfast.target import BoundTarget

Slopes = Callable[[], tuple[Tensor, Tensor]]  # () -> gradient (n, d) and priority (n, d)
LIMIT_OFF = 1 << 30


@dataclass
class PixelSlots:
    """The pairs being worked on; all tensors have one row a slot."""

    pair: Tensor  # (s,) which pair of the problem is in the slot
    x: Tensor  # (s, d) images as rows of values
    free: Tensor  # (s, d) what may change at all
    goal: BoundTarget
    steps: Tensor  # (s, d) P
    memory: Tensor | None  # (s, d) M
    locked: Tensor  # (s, d) pixels that the lock rule has closed
    count: Tensor  # (s,) k

    @classmethod
    def of(cls, problem: ImageSearchProblem, pair: Tensor, momentum: bool) -> "PixelSlots":
        x = problem.x[pair].flatten(1)
        steps = torch.zeros_like(x, dtype=torch.int32)
        locked = torch.zeros_like(x, dtype=torch.bool)
        memory = torch.zeros_like(x) if momentum else None
        count = torch.zeros(len(pair), dtype=torch.int64)
        return cls(
            pair, x, problem.free[pair].flatten(1), problem.goal[pair], steps, memory, locked, count
        )

    def keep(self, rows: Tensor) -> "PixelSlots":
        """Some of the slots."""
        parts: list[Any] = [
            None if values is None else values[rows] for values in vars(self).values()
        ]
        return PixelSlots(*parts)

    def put(self, rows: Tensor, new: "PixelSlots") -> None:
        """Other pairs in some of the slots."""
        for name in ("pair", "x", "free", "steps", "memory", "locked", "count"):
            values = getattr(self, name)
            if values is not None:
                values[rows] = getattr(new, name)
        label = self.goal.label.index_copy(0, rows, new.goal.label)
        self.goal = replace(self.goal, label=label)


@dataclass(eq=False, repr=False, kw_only=True)
class GreedyPixels(ImageExplainer):
    """What all greedy pixel methods share.

    Args:
        delta: how much a pixel changes in a step.
        limit: how often a pixel may be chosen; None sets no limit.
        pixels: how many pixels change in a step.
        min_probability: the wanted class must become this likely.
        max_iter: the most steps. A target met only after the last one counts as found here, but not
            in the paper, whose code does not look again: such pairs have `iterations == max_iter`.
        momentum: share of the accumulated gradient that is kept from step to step.
        momentum_applies_to: "sign" (only the direction of a step, as in DeDUCE's released code), or
            "choice" (also which pixel is chosen, as printed).
        lock_at_bounds: a pixel that a step leaves at 0 or 1 is not chosen again.
        shortcut: skip the passes whose step cannot move its pixel.
        compact: finished pairs make room for others; if false, a batch waits for its slowest pair.

    >>> import holdfast as hf
    >>> [issubclass(method, hf.images.GreedyPixels) for method in (hf.DeDUCE, hf.JSMA)]
    [True, True]
    """

    advice: ClassVar[str] = "raise max_iter or limit, or lower min_probability"

    delta: float = 0.2
    limit: int | None = 5
    pixels: int = 1
    min_probability: float | None = 0.5
    max_iter: int = 700
    momentum: float = 0.0
    momentum_applies_to: Literal["sign", "choice"] = "sign"
    lock_at_bounds: bool = False
    shortcut: bool = True
    compact: bool = True

    @abstractmethod
    def look(self, model: ImageModel, x: Tensor, goal: BoundTarget) -> tuple[Tensor, Slopes]:
        """Scores (n, k) of images, and a function that gives gradients of the loss and priorities
        of the pixels."""

    def ranked(self, priority: Tensor, shut: Tensor) -> Tensor:
        """(n, d) priorities among the pixels that may still be chosen; 0 for those that may not."""
        return priority.masked_fill(shut, 0.0)

    def check(self, model: ImageModel) -> None:
        if not 0 < self.delta <= 1:
            raise SettingError(f"delta must lie between 0 and 1, got {self.delta}")
        limit = 1 if self.limit is None else self.limit
        for name, value, least in (
            ("limit", limit, 1),
            ("pixels", self.pixels, 1),
            ("max_iter", self.max_iter, 0),
        ):
            require_integer(name, value, least)
            if not value < LIMIT_OFF:
                raise SettingError(f"{name} must be below {LIMIT_OFF}, got {value}")
        if not 0 <= self.momentum < 1:
            raise SettingError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        mode = self.momentum_applies_to
        modes = "sign", "choice"
        if mode not in modes:
            raise SettingError(f"momentum_applies_to must be one of {modes}, got {mode!r}")

    def search(self, problem: ImageSearchProblem) -> ImageFound:
        n = len(problem)
        shape = problem.x.shape[1:]
        out = problem.x.flatten(1).clone()
        iterations = torch.zeros(n, dtype=torch.int64)
        passes = 0
        waiting = torch.arange(n)
        out_of_time = torch.zeros(n, dtype=torch.bool)
        slots = PixelSlots.of(problem, waiting[: problem.batch_size], self.momentum > 0)
        waiting = waiting[problem.batch_size :]
        while len(slots.pair):
            if problem.budget.over():  # what is open comes back as it is
                out[slots.pair] = slots.x
                iterations[slots.pair] = slots.count
                out_of_time[slots.pair] = True
                out_of_time[waiting] = True
                break
            scores, slopes = self.look(problem.model, slots.x.view(-1, *shape), slots.goal)
            over = slots.goal.met(scores) | (slots.count >= self.max_iter)
            if not bool(over.all()):
                passes += len(over)
                over |= self.step(slots, *slopes(), over)
            done = over.nonzero().squeeze(1)
            if not len(done):
                continue
            out[slots.pair[done]] = slots.x[done]
            iterations[slots.pair[done]] = slots.count[done]
            if not self.compact and len(done) < len(over):
                continue  # they stay, finished, until the whole batch is
            problem.budget.bar.step(len(done))
            new = waiting[: len(done)]
            waiting = waiting[len(done) :]
            if len(new):
                slots.put(done[: len(new)], PixelSlots.of(problem, new, self.momentum > 0))
            if len(new) < len(done):
                stays = torch.ones(len(over), dtype=torch.bool).index_fill_(
                    0, done[len(new) :], False
                )
                slots = slots.keep(stays.nonzero().squeeze(1))
        return ImageFound(out.view(n, *shape), iterations, passes, out_of_time)

    def step(self, slots: PixelSlots, g: Tensor, priority: Tensor, over: Tensor) -> Tensor:
        """One step of every slot that is not over; returns which slots have nothing left to
        change.

        Paper: hoeltgen2021 Algorithm 1, Eq. 6.
        """
        limit = LIMIT_OFF if self.limit is None else self.limit
        shut = (slots.steps >= limit) | slots.locked | ~slots.free
        g = g.masked_fill(shut, 0.0)
        priority = self.ranked(priority, shut)
        push = g if slots.memory is None else g + self.momentum * slots.memory  # M of this step
        if slots.memory is not None and self.momentum_applies_to == "choice":
            priority = push.abs().masked_fill(shut, 0.0)
        if self.shortcut and self.pixels == 1 and self.momentum_applies_to == "sign":
            push = self._skip(slots, g, push, priority, over, limit)
        # NaN is not a priority
        stuck = ~over & (~(priority.amax(1) > 0) | (slots.count >= self.max_iter))
        moves = ~over & ~stuck
        rows = torch.arange(len(g))
        for _ in range(self.pixels):
            best, pixel = priority.max(1)
            go = moves & (best > 0)
            value = slots.x[rows, pixel]
            new = (value - self.delta * push[rows, pixel].sign()).clamp(0, 1)
            slots.x[rows, pixel] = torch.where(go, new, value)
            slots.steps[rows, pixel] += go.to(slots.steps.dtype)
            if self.lock_at_bounds:
                slots.locked[rows, pixel] |= go & ((new == 0) | (new == 1))
            priority[rows, pixel] = 0.0
        if slots.memory is not None:
            slots.memory = torch.where(moves[:, None], push, slots.memory)
        slots.count += moves.to(slots.count.dtype)
        return stuck

    def _skip(
        self, slots: PixelSlots, g: Tensor, push: Tensor, priority: Tensor, over: Tensor, limit: int
    ) -> Tensor:
        """Use up the steps of pixels that would be chosen next but cannot move; returns M after
        these steps.

        `priority`, `slots.steps`, `slots.locked` and `slots.count` change in place.
        """
        way = push.sign()
        blocked = ((slots.x <= 0) & (way > 0)) | ((slots.x >= 1) & (way < 0))
        if slots.memory is not None:
            # else the direction might turn while the pixel is chosen again
            blocked &= way == g.sign()
        best = torch.where(blocked, 0.0, priority).amax(1, keepdim=True)
        # Of equal ones the first is chosen; those behind the best one that can move wait for
        # another step.
        ahead = blocked & (priority > best) & ~over[:, None]
        if not bool(ahead.any()):
            return push
        left = torch.ones_like(slots.steps) if self.lock_at_bounds else (limit - slots.steps)
        used = torch.where(ahead, left, 0).to(torch.int64).sum(1)
        slots.count = (slots.count + used).clamp_max(self.max_iter)
        slots.steps[ahead] = slots.steps[ahead] + left[ahead] if self.lock_at_bounds else limit
        if self.lock_at_bounds:
            slots.locked |= ahead
        priority.masked_fill_(ahead, 0.0)
        if slots.memory is None:
            return push
        # The gradient stays the same meanwhile: M after r steps is m^r M + g (1 - m^r) / (1 - m).
        # What is locked now had gradients until then, and is never chosen again.
        kept = self.momentum ** used.to(g.dtype)[:, None]
        before = slots.memory * kept + g * ((1 - kept) / (1 - self.momentum))
        return g.masked_fill(ahead, 0.0) + self.momentum * before
