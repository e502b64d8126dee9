"""What counts as success: one number per row, the gap, by how much the wanted outcome leads.

A row has the wanted outcome where its gap exceeds the margin. Searches follow the gap and verdicts
compare it, so the two cannot disagree. With scores s_1 .. s_k:

    asked for                      gap                                  margin
    class y                        s_y - max_{j != y} s_j               0
    class y by a margin m          the same                             m
    class y with probability p     s_y - log sum_{j != y} exp s_j       log p / (1 - p)
    any class but y                the same with the opposite sign      likewise
    a number v from low to high    min(v - low, high - v) / unit        0, which is enough

The third gap is the log-odds of y, so it exceeds its margin exactly where p_y > p.

A margin of 0 or more (a probability of one half or more) also promises that the class will be the
predicted one, or, if any other class was asked for, that y no longer is. In three cases the gap in
the table does not keep that promise:

    the model has a threshold of its own         it may predict y at 0.3, or only from 0.7 up
    searches ask `predict` besides the scores    it may contradict them
    one of three or more classes is to be left   the others together may reach 0.6 while each of
                                                 them alone is behind y

There the gap is the smaller of two: that of the table, by the model's own probabilities, and
margin + the lead by which the class is predicted. It exceeds the margin where both conditions hold.
A margin below 0 (a probability below one half) asks for less than the predicted class: only the
table counts.

The unit of a number is half the interval or the spread of the model's estimates, whichever is
smaller: gaps then have the size that they have for classes, whatever the unit of the estimate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Union, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from holdfast._core.checks import did_you_mean, listed
from holdfast._core.types import Label, Labels
from holdfast.errors import TargetError
from holdfast.models.base import Model
from holdfast.models.scores import probabilities, undecided

# what may be asked for: `Target.of` makes a `Target` of it
TargetLike = Union["Target", Label, Labels, None]

TINY = 1e-30  # the least unit: one over it is a number in single precision too
# of estimates, for people
DIGITS = 3
MOST_DECIMALS = 12
HUGE = 1e15  # from here on a number is written as Python writes it
# Log-odds this near are the same: a share of trees is an exact number, its logarithm is not, and of
# two that are level the predicted one is put ahead by less.
LEVEL = 1e-8


class Status(IntEnum):
    """What became of a row: an answer was found; the row had the wanted outcome from the start; no
    answer was found; the model accepts an answer that too few retrained models accept (fragile); or
    it was proved that there is no answer (impossible).

    >>> import holdfast as hf
    >>> [status.words for status in hf.Status]
    ['found', 'already met', 'not found', 'fragile', 'impossible']
    """

    FOUND, ALREADY_MET, NOT_FOUND, FRAGILE, IMPOSSIBLE = range(5)

    @property
    def words(self) -> str:
        """'already met'"""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Target:
    """The outcome that is asked for.

    Args:
        label: a class for all rows, or one per row; None asks for any class but the current one.
        probability: how likely the model must find that outcome, between 0 and 1. From one half up,
            the class must also be the predicted one (or, if any other class is asked for, must no
            longer be); an estimator's own `predict` decides. Below one half, only the probability
            counts.
        margin: by how much its score must lead the next best; below 0, only that counts.
        interval: lowest and highest estimate that is wanted of a regression model; see `between`.

    >>> import holdfast as hf
    >>> print(hf.Target("approved", probability=0.8))
    approved with probability 0.8
    >>> print(hf.Target.between(200_000, None))
    at least 200,000
    """

    label: Label | Labels | None = None
    probability: float | None = None
    margin: float = 0.0
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        p = self.probability
        margin = self.margin
        if self.interval is not None:
            low, high = self.interval
            if self.label is not None or p is not None or margin:
                raise TargetError("ask for a class or for a range of numbers, not both")
            if not low < high:
                raise TargetError(f"the range {self.interval} is empty; its lower end comes first")
        if p is not None and not 0 < p < 1:
            raise TargetError(f"probability must lie between 0 and 1, got {p}")
        if p is not None and margin:
            raise TargetError("ask for a probability or a margin, not both")
        if not math.isfinite(margin):
            raise TargetError(f"margin must be a number, got {margin}")

    @classmethod
    def of(cls, value: TargetLike) -> "Target":
        """A class, one per row, or a Target; None for any class but the current one."""
        return value if isinstance(value, Target) else cls(value)

    @classmethod
    def between(cls, low: float | None = None, high: float | None = None) -> "Target":
        """An estimate of a regression model from `low` to `high`, both included; None leaves a side
        open."""
        if low is None and high is None:
            raise TargetError(
                "a range needs an end: between(low, high), between(low, None) or between(None, "
                "high)"
            )
        start = -math.inf if low is None else _end("low", low)
        end = _end("high", high)
        if start > end:
            raise TargetError(f"the range from {start:g} to {end:g} is empty; swap its ends")
        if start == end:
            raise TargetError(
                f"an estimate hits exactly {start:g} only by luck; give a range around it"
            )
        return cls(interval=(start, end))

    @classmethod
    def parse(
        cls, text: str, classes: Sequence[Label], probability: float | None = None
    ) -> "Target":
        """The target that a string describes.

        Args:
            text: the name of a class, which may be a number to the model; or, for a regression
                model, a range of estimates: '200..250', '200..' or '..250'.
                classes: those of the model; empty for a regression model.
            probability: how likely the class must become.

        >>> import holdfast as hf
        >>> hf.Target.parse("1", classes=(0, 1)).label
        1
        >>> hf.Target.parse("..250", classes=()).interval
        (-inf, 250.0)
        """
        if classes:
            same = [c for c in classes if c == text] or [c for c in classes if str(c) == text]
            return cls(same[0] if same else text, probability)
        if probability is not None:
            raise TargetError(
                "a regression model has no probabilities; ask for a range only, such as 200..250"
            )
        low, dots, high = text.partition("..")
        try:
            ends = [float(end) if end.strip() else None for end in (low, high)]
        except ValueError:
            ends = [None, None]
        if not dots or ends == [None, None]:
            raise TargetError(f"a regression model needs a range, such as 200..250, got {text!r}")
        return cls.between(*ends)

    def bind(self, model: Model, scores: Tensor) -> "BoundTarget":
        """The target for rows that the model gives `scores` (n, k) now."""
        # The only place that tells kinds of targets apart; from here on there are gaps and margins.
        if model.is_regression != (self.interval is not None):
            raise TargetError(_wrong_kind(model, self))
        if self.interval is not None:
            low, high = self.interval
            unit = max(min(model.output_scale, high / 2 - low / 2), TINY)
            no_class = torch.zeros(len(scores), dtype=torch.int64)
            return IntervalTarget(no_class, 1.0, 0.0, False, 1, low, high, unit)
        if self.label is None:
            labels = scores.argmax(1)
            sign = -1.0
        else:
            labels = self._labels(model.classes, len(scores))
            sign = 1.0
        p = self.probability
        margin = self.margin if p is None else math.log(p / (1 - p))
        if model.labels_only and (p is not None or margin):
            raise TargetError(
                "the model predicts classes and gives no scores, so there is no probability or "
                "margin to ask for; ask for the class alone"
            )
        return BoundTarget(
            labels,
            sign,
            margin,
            soft=p is not None,
            k=scores.shape[1],
            offset=model.offset,
            defers_to_predict=model.defers_to_predict,
        )

    def _labels(self, classes: tuple[Any, ...], n: int) -> Tensor:
        is_list = isinstance(self.label, Sequence | np.ndarray | pd.Series | Tensor | pd.Index)
        if isinstance(self.label, str) or not is_list:
            return torch.full((n,), _place(self.label, classes))
        labels = cast(Any, self.label)
        wanted: list[Any] = list(labels.tolist() if hasattr(labels, "tolist") else labels)
        if len(wanted) != n:
            raise TargetError(f"{len(wanted)} targets for {n} rows; give one class, or one per row")
        place = {label: _place(label, classes) for label in dict.fromkeys(wanted)}
        return torch.tensor([place[label] for label in wanted], dtype=torch.int64)

    def __str__(self) -> str:
        if self.interval is not None:
            return _range_in_words(*self.interval)
        if self.label is None:
            outcome = "any other class"
        elif hasattr(self.label, "__len__") and not isinstance(self.label, str):
            outcome = "one class per row"
        else:
            outcome = f"{self.label}"
        if self.probability is not None:
            return f"{outcome} with probability {self.probability:g}"
        return f"{outcome} by a margin of {self.margin:g}" if self.margin else outcome


def _range_in_words(low: float, high: float) -> str:
    """'at least 200,000'"""
    ends = [written(v, 0 if v == round(v, 0) and abs(v) < HUGE else None) for v in (low, high)]
    if not math.isfinite(low):
        return f"at most {ends[1]}"
    if not math.isfinite(high):
        return f"at least {ends[0]}"
    return f"between {ends[0]} and {ends[1]}"


def _end(name: str, value: float | None) -> float:
    """One end of a range; None if it is open."""
    if value is None:
        return math.inf
    try:
        number = math.nan if isinstance(value, str | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise TargetError(f"{name} must be a number, or None for an open end, got {value!r}")
    return number


def written(value: float, decimals: int | None) -> str:
    """1150.0 -> '1,150', with at most so many decimals; None: as Python writes it."""
    text = repr(value) if decimals is None else f"{value:,.{decimals}f}"
    if decimals and "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _wrong_kind(model: Model, target: Target) -> str:
    if model.is_regression:
        wanted = "any other class" if target.label is None else f"the class {target.label!r}"
        return (
            f"this is a regression model and has no classes, so {wanted} cannot be asked of it; "
            "ask for a range: hf.Target.between(low, high)"
        )
    return (
        f"the model has classes, so ask for one of them, not for a range: {listed(model.classes)}"
    )


def _place(label: Any, classes: tuple[Any, ...]) -> int:
    for i, name in enumerate(classes):
        if name == label and isinstance(name, str) == isinstance(label, str):
            return i
    if all(isinstance(c, int) for c in classes) and isinstance(label, str):
        numbers = f"only numbers {list(classes)}; pass classes=[...] to Model.of (--classes LIST)"
        raise TargetError(f"the model has no class {label!r}, {numbers}")
    raise TargetError(f"the model has no class {label!r}; {did_you_mean(label, classes)}")


@dataclass(frozen=True)
class BoundTarget:
    """A target bound to rows."""

    label: Tensor  # (n,) the class to reach, or to leave
    sign: float  # +1 reach, -1 leave
    margin: float
    soft: bool
    k: int
    offset: Sequence[float] = field(default=(), kw_only=True)  # of the classes, see `Model`
    # Has the predicted class been put ahead in the scores? See `Model`.
    defers_to_predict: bool = field(default=False, kw_only=True)

    def __getitem__(self, rows: Tensor | slice) -> "BoundTarget":
        return replace(self, label=self.label[rows])

    def asked_of(self, model: Model) -> "BoundTarget":
        """The same, asked of another model with these classes, which may have a threshold or a
        `predict` of its own."""
        if model.labels_only and (self.soft or self.margin):
            raise TargetError(
                "a model that predicts classes and gives no scores cannot be asked for a "
                "probability or a margin; ask for the class alone (an audit: rule='class')"
            )
        return replace(self, offset=model.offset, defers_to_predict=model.defers_to_predict)

    def by_class(self) -> "BoundTarget":
        """The class alone, whatever probability or margin was asked for."""
        return replace(self, margin=0.0, soft=False)

    @cached_property
    def is_lead(self) -> bool:
        """Is the gap the lead by scores and nothing else?"""
        if not (self.soft or self.margin):
            return True
        leaves_one_of_many = self.k > 2 and self.soft and self.sign < 0 and self.margin >= 0
        return not (any(self.offset) or self.defers_to_predict or leaves_one_of_many)

    @cached_property
    def direction(self) -> float:
        """With two classes and one target for all rows: the gap is this times (s_1 - s_0). Else
        0."""
        if self.k != 2 or not self.is_lead or not len(self.label):
            return 0.0
        if bool((self.label != self.label[0]).any()):
            return 0.0
        return self.sign if int(self.label[0]) == 1 else -self.sign

    @cached_property
    def ahead(self) -> Tensor:
        """(n,), or (1,) if there is none: what the offset of two classes adds to the lead."""
        if not any(self.offset):
            return torch.zeros(1, dtype=torch.float64)
        first, second = self.offset
        return (second - first) * self._two_sided[:, 1].double()

    @cached_property
    def least(self) -> Tensor:
        """(n,), or (1,): the lead that two classes need by their scores, with the offset."""
        if self.is_lead:
            return torch.tensor([self.margin], dtype=torch.float64)
        return (self.margin + self.ahead).clamp_min(0.0 if self.margin >= 0 else -math.inf)

    @cached_property
    def _two_sided(self) -> Tensor:
        """(n, 2) the constant slope of the lead when there are two classes."""
        return self.sign * (2.0 * torch.nn.functional.one_hot(self.label, 2) - 1)

    def gap(self, scores: Tensor, *, soft: bool | None = None) -> Tensor:
        """(n, k) scores -> (n,) lead of the wanted outcome."""
        return self.gap_and_slope(scores, soft=soft)[0]

    def gap_and_slope(self, scores: Tensor, *, soft: bool | None = None) -> tuple[Tensor, Tensor]:
        """The gap and its derivative by the scores (n, k)."""
        if self.is_lead:
            return self.lead_and_slope(scores, soft=soft)
        # by the model's own probabilities: before `predict` or a threshold had a say
        own = undecided(scores) if self.defers_to_predict else scores
        gap, slope = self.lead_and_slope(own, soft=soft)
        gap = gap - self.ahead.to(gap.dtype)
        if self.margin < 0:  # less is asked for than to be predicted
            return gap, slope
        lead, steep = self.lead_and_slope(scores, soft=False)
        lead = lead + self.margin
        return torch.minimum(gap, lead), torch.where((lead < gap)[:, None], steep, slope)

    def lead_and_slope(self, scores: Tensor, *, soft: bool | None = None) -> tuple[Tensor, Tensor]:
        """By how much the wanted outcome leads by these scores (n, k) alone, and the derivative."""
        if self.k == 2:
            slope = self._two_sided.to(scores.dtype)
            return (scores * slope).sum(1), slope
        own = torch.nn.functional.one_hot(self.label, self.k).to(scores.dtype)
        rivals = scores.masked_fill(own > 0, -math.inf)
        if self.soft if soft is None else soft:
            best = torch.logsumexp(rivals, 1)
            share = torch.softmax(rivals, 1)
        else:
            best, rival = rivals.max(1)
            share = torch.nn.functional.one_hot(rival, self.k).to(scores.dtype)
        return self.sign * ((scores * own).sum(1) - best), self.sign * (own - share)

    def met(self, scores: Tensor, slack: float = 0.0) -> Tensor:
        """(n,) is the outcome reached?"""
        level = LEVEL * (1 + abs(self.margin)) if self.soft else 0.0
        return self.gap(scores) > self.margin + slack + level

    def wanted(self, scores: Tensor) -> Tensor:
        """(n,) the class to reach; where any but one will do, the likeliest by the scores (n,
        k)."""
        if self.sign > 0:
            return self.label
        own = torch.nn.functional.one_hot(self.label, self.k) > 0
        return scores.masked_fill(own, -torch.inf).argmax(1)

    def value(self, scores: Tensor) -> Tensor:
        """(n,) probability of the wanted outcome; of a regression model the estimate itself."""
        by_class = probabilities(scores, self.offset, defers_to_predict=self.defers_to_predict)
        p = by_class.gather(1, self.label[:, None]).squeeze(1)
        return p if self.sign > 0 else 1 - p

    def describe(self, scores: Tensor) -> list[str]:
        """What the model says of each row, in words: 'probability 0.43', 'the estimate 212,000'."""
        return [f"probability {p:.2f}" for p in self.value(scores).numpy().tolist()]


@dataclass(frozen=True)
class IntervalTarget(BoundTarget):
    """A range of numbers bound to rows: the one score of a row is the model's estimate."""

    low: float
    high: float
    unit: float

    def gap_and_slope(self, scores: Tensor, *, soft: bool | None = None) -> tuple[Tensor, Tensor]:
        # (n, 1)
        above = scores - self.low
        below = self.high - scores
        slope = torch.where(above < below, 1 / self.unit, -1 / self.unit).to(scores.dtype)
        return torch.minimum(above, below).squeeze(1) / self.unit, slope

    def met(self, scores: Tensor, slack: float = 0.0) -> Tensor:
        """(n,) does the estimate lie in the range? Both ends belong to it."""
        v = scores.double().squeeze(1)
        return torch.minimum(v - self.low, self.high - v) >= (self.margin + slack) * self.unit

    def value(self, scores: Tensor) -> Tensor:
        return scores.squeeze(1).double()

    def describe(self, scores: Tensor) -> list[str]:
        return [
            f"the estimate {number}" for number in self.numbers(self.value(scores).numpy().tolist())
        ]

    def numbers(self, estimates: Sequence[float]) -> list[str]:
        """Estimates for people: as many digits as tell them apart from the ends of the range."""
        decimals = min(max(DIGITS - 1 - math.floor(math.log10(self.unit)), 0), MOST_DECIMALS)
        return [written(v, decimals if abs(v) < HUGE else None) for v in estimates]
