"""The eight claims of Krishna et al. 2024, in their parts: when each holds, and the words that say
why."""

from collections import Counter
from typing import Any, Literal

import numpy as np

from experiments.experiment import Figures, Results
from experiments.krishna2024.bounds import HARDER
from experiments.krishna2024.curves import DEPTHS, SWEPT, WIDTHS
from experiments.krishna2024.setup import KINDS
from experiments.records import interval_of
from holdfast._core.checks import untyped
from holdfast.training.adversarial import EPSILONS

PRINTED = 4  # methods of the paper; the others are shown beside them
TREND = 0.8  # a rank correlation beyond it is a trend
CLAIMS = {
    "1": "Validity falls with epsilon, and at 0.3 is less than half of what it was",
    "2a": "Answers are more expensive on hardened models, for each of the four methods",
    "2b": "They become more expensive as epsilon grows, for each of the four methods",
    "2c": "SCFE's extra cost varies least among rows",
    "3": "The trends do not depend on depth and width",
    "4a": "Theorems 1 and 2 as printed bound the differences of the answers that SCFE gives",
    "4b": "The same theorems, corrected",
    "4c": "Theorem 3 bounds the differences of the answers that C-CHVAE gives",
    "5": "Theorem 4 (linear models): its condition is met by more than 90 % of the rows, and its "
    "conclusion by all of these",
    "6a": "Accuracy under attack is lowest for the plain model",
    "6b": "Accuracy under attack rises with the epsilon of training",
    "7": "Fewer points of a neighbourhood get the other outcome as epsilon grows",
    "8a": "Noise breaks more answers of SCFE on the hardest model that gives any than on the plain "
    "one",
    "8b": "Noise breaks more answers of SCFE as epsilon grows",
}
ONLY = {"3": "network", "5": "logistic regression"}  # a linear model has no depth

Holds = Literal["yes", "no", "not sure", "not testable here", "not measured yet"]
Verdict = tuple[Holds, str]
UNKNOWN: Verdict = ("not measured yet", "")
Curve = dict[str, np.ndarray[Any, Any]]


def numbers(value: Any) -> np.ndarray[Any, Any]:
    return np.array(value, dtype=np.float64)


def verdicts(result: Figures) -> list[Figures]:
    """Each claim for each kind of model: does it hold, and by which statistic."""
    out = list[Figures]()
    for kind in KINDS:
        curve = {key: numbers(value) for key, value in result["curves"][kind].items()}
        for number, check in CHECKS.items():
            if ONLY.get(number, kind) != kind:
                continue
            holds, statistic = check(kind, curve, result)
            out.append({"claim": number, "model": kind, "holds": holds, "statistic": statistic})
    return out


def rank_correlation(a: Any, b: Any) -> float:
    """Spearman's, over the pairs that are there; 0 if one side does not vary."""
    a = np.asarray(a, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    there = np.isfinite(a) & np.isfinite(b)
    if there.sum() < 3 or len(set(a[there])) < 2 or len(set(b[there])) < 2:
        return 0.0
    return float(untyped("scipy.stats").spearmanr(a[there], b[there]).statistic)


def rises(values: Any) -> bool:
    """With epsilon?"""
    return rank_correlation(EPSILONS, values) > TREND


def falls(values: Any) -> bool:
    return rank_correlation(EPSILONS, values) < -TREND


def of_seeds(values: Any) -> tuple[Holds, str]:
    """Whether a figure, of which each seed has one, is positive: by the 95 % interval of its
    mean."""
    known = [float(value) for value in numbers(values) if np.isfinite(value)]
    interval = interval_of(known)
    if interval is None:
        return "not sure", "-" if not known else f"{known[0]:+.3f}, one seed"
    low, high = interval
    words = f"{np.mean(known):+.3f} ({low:+.3f} to {high:+.3f})"
    return "yes" if low > 0 else "no" if high < 0 else "not sure", words


def of_methods(names: list[str], values: Any) -> Verdict:
    """The same for each of the paper's methods, (methods, seeds); all of them have to hold."""
    each = [of_seeds(line) for line in values]
    words = [
        f"{name}: {statistic}, {holds}"
        for name, (holds, statistic) in zip(names, each, strict=True)
    ]
    return _all([holds for holds, _ in each[:PRINTED]]), "; ".join(words)


def _all(parts: list[Holds]) -> Holds:
    """Of several parts: no if one fails, yes if all hold."""
    if "no" in parts:
        return "no"
    return "yes" if set(parts) == {"yes"} else "not sure"


def by_seed_trends(values: Any) -> list[float]:
    """The rank correlation with epsilon of each seed, (epsilons, seeds)."""
    return [rank_correlation(EPSILONS, line) for line in numbers(values).T]


def _yes(holds: bool) -> Holds:
    return "yes" if holds else "no"


def trend(values: Any) -> str:
    """The rank correlation with epsilon. Values that fall and then stay (from some epsilon on, all
    models give one class) have many ties, which keep it short of a trend though they never rise:
    the words say so, and it decides nothing.
    """
    steps = np.diff(known := numbers(values)[np.isfinite(numbers(values))])
    words = f"rank correlation {rank_correlation(EPSILONS, values):.2f}"
    if len(known) < 3 or rises(values) or falls(values) or not steps.any():
        return words
    if (steps <= 0).all() or (steps >= 0).all():
        return (
            f"{words} (never {'rises' if (steps <= 0).all() else 'falls'}; short of a trend "
            "because of ties)"
        )
    return words


def _claim1(kind: str, curve: Curve, result: Figures) -> Verdict:
    words = list[str]()
    good = list[bool]()
    for name, valid in zip(result["methods"], curve["validity"], strict=True):
        last = valid[np.isfinite(valid)][-1] if np.isfinite(valid).any() else np.nan
        good.append(bool(falls(valid) and last < 0.5 * valid[0]))
        words.append(f"{name}: {valid[0]:.2f} to {last:.2f}, {trend(valid)}{_mark(good[-1])}")
    return _yes(all(good[:PRINTED])), "; ".join(words)


def _claim2a(kind: str, curve: Curve, result: Figures) -> Verdict:
    """The mean over all epsilons at which a method answers rows that the plain model answers."""
    if "extra cost by seed" not in curve:
        return UNKNOWN
    rise = curve["extra cost by seed"][:, 1:]  # (methods, epsilons, seeds)
    return of_methods(result["methods"], mean_of_known(rise, 1))


def _claim2b(kind: str, curve: Curve, result: Figures) -> Verdict:
    """By the rank correlation of each seed."""
    if "extra cost by seed" not in curve:
        return UNKNOWN
    trends = [by_seed_trends(rise) for rise in curve["extra cost by seed"]]
    return of_methods(result["methods"], trends)


def _claim2c(kind: str, curve: Curve, result: Figures) -> Verdict:
    """By how much the standard deviation of others is larger, seed by seed."""
    if "extra cost sd by seed" not in curve:
        return UNKNOWN
    spread = mean_of_known(curve["extra cost sd by seed"][:, 1:], 1)  # (methods, seeds)
    own = result["methods"].index("SCFE")
    others = [i for i in range(PRINTED) if i != own]
    more = [spread[i] - spread[own] for i in others]
    return of_methods([f"{result['methods'][i]} minus SCFE" for i in others], more)


def mean_of_known(values: Any, axis: int) -> np.ndarray[Any, Any]:
    """The mean over an axis of what is finite; nan where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _claim3(kind: str, curve: Curve, result: Figures) -> Verdict:
    words = list[str]()
    good = list[bool]()
    costs_known = list[bool]()
    for what, shapes in (("depth", DEPTHS), ("width", WIDTHS)):
        values = numbers(result["sweep"][what])  # (shapes, methods, epsilons, figures)
        for i, name in enumerate(SWEPT):
            lost = values[:, i, 0, 0] - values[:, i, 1, 0]
            rise = values[:, i, 1, 1]
            known = rise[np.isfinite(rise)]
            good.append(bool((lost > 0).all() and (known > 0).all()))
            costs_known.append(len(known) == len(rise))
            each = ", ".join("-" if np.isnan(v) else f"{v:.2f}" for v in lost)
            more = ", ".join("-" if np.isnan(v) else f"{v:.2f}" for v in rise)
            words.append(
                f"{what} {list(shapes)}: {name} loses {each} of its validity (rank correlation "
                f"{rank_correlation(shapes, lost):.2f}), answers more expensive by "
                f"{more}{_mark(good[-1])}"
            )
    if all(good) and not all(costs_known):
        return "not testable here", "; ".join(
            ["no row is answered by both models in some networks: costs are not known", *words]
        )
    return _yes(all(good)), "; ".join(words)


def _mark(holds: bool) -> str:
    return "" if holds else " (no)"


def _judged(curve: Curve, column: int, words: str) -> Verdict:
    """How many answers that SCFE really gave differ by more than a bound, over all epsilons and
    seeds."""
    if "judged" not in curve:
        return UNKNOWN
    counts = curve["judged"]  # (epsilons, seeds, figures)
    pairs = int(counts[..., 0].sum())
    if not pairs:
        return "not testable here", "no row is answered by both models"
    broken = int(counts[..., column].sum())
    return _yes(not broken), f"{broken} of {pairs} answers break {words}"


def _claim4a(kind: str, curve: Curve, result: Figures) -> Verdict:
    holds, words = _judged(curve, 2, "the printed bound")
    if kind == "logistic regression":
        lines = result["linear bounds"]
        empty = [line["printed vacuous"] for line in lines if line["printed vacuous"] is not None]
        more = f"by the drift of Lemma 1, vacuous for {np.mean(empty or [np.nan]):.0%}, "
    else:
        lines = result["ntk bounds"]
        more = "kernel machines: "
    worst = max(line["printed violated"] or 0 for line in lines)
    return holds, "; ".join(
        [words] * bool(words) + [f"{more}taken literally violated by up to {worst:.0%}"]
    )


def _claim4b(kind: str, curve: Curve, result: Figures) -> Verdict:
    """Steps of the tangent plane meet these bounds by the triangle inequality, whatever they are;
    answers need not."""
    return _judged(curve, 1, "the corrected bound")


def _claim4c(kind: str, curve: Curve, result: Figures) -> Verdict:
    """At the paper's epsilons, where C-CHVAE answers a row on both models."""
    lines = [line for line in result["vae bounds"] if line["kind"] == float(kind == "network")]
    hard = [line for line in lines if line["epsilon"] in HARDER]
    tested = [line for line in hard if line["rows"]]
    if not tested:
        return "not testable here", "no row is answered by both models at epsilon 0.1 to 0.3"
    if any("violated by answers" not in line for line in tested):
        return UNKNOWN
    words = "; ".join(f"epsilon {line['epsilon']:g}: {_broken(line)}" for line in hard)
    return _yes(not any(line["violated by answers"] for line in tested)), words


def _broken(line: Figures) -> str:
    if not line["rows"]:
        return "not testable here, no pair"
    return f"{line['violated by answers']:.0%} of {line['rows']:.0f} rows break it"


def _claim5(kind: str, curve: Curve, result: Figures) -> Verdict:
    lines = [line for line in result["linear bounds"] if line["Theorem 4 condition"] is not None]
    if not lines:
        return "not testable here", "no row is refused by both models"
    met = min(line["Theorem 4 condition"] for line in lines)
    true = [line["Theorem 4 conclusion"] for line in lines]
    known = [share for share in true if share is not None]
    least = min(known, default=float("nan"))
    words = (
        f"condition met by at least {met:.0%}, conclusion true for {least:.0%} to "
        f"{max(known, default=0):.0%}"
    )
    return _yes(met > 0.9 and least == 1), words


def _claim6a(kind: str, curve: Curve, result: Figures) -> Verdict:
    """By how much the least of the hardened models is better, seed by seed."""
    if "attacked by seed" not in curve:
        return UNKNOWN
    kept = curve["attacked by seed"]  # (epsilons, seeds)
    return of_seeds(kept[1:].min(0) - kept[0])


def _claim6b(kind: str, curve: Curve, result: Figures) -> Verdict:
    """By the rank correlation of each seed."""
    if "attacked by seed" not in curve:
        return UNKNOWN
    return of_seeds(by_seed_trends(curve["attacked by seed"]))


def _claim7(kind: str, curve: Curve, result: Figures) -> Verdict:
    share = curve["nearby"]
    everyone = curve["nearby, all rows"]
    words = f"share {share[0]:.3f} to {share[-1]:.3f}, {trend(share)}"
    all_words = f"over all rows {everyone[0]:.3f} to {everyone[-1]:.3f}, {trend(everyone)}"
    return _yes(falls(share)), f"{words}; {all_words}"


def _claim8a(kind: str, curve: Curve, result: Figures) -> Verdict:
    """How much larger the share of broken answers is, seed by seed."""
    if "noise by seed" not in curve:
        return UNKNOWN
    more = list[float]()
    for noise in curve["noise by seed"].T:  # of one seed
        there = noise[np.isfinite(noise)]
        more.append(float(there[-1] - there[0]) if len(there) > 1 else np.nan)
    return of_seeds(more)


def _claim8b(kind: str, curve: Curve, result: Figures) -> Verdict:
    """By the rank correlation of each seed."""
    if "noise by seed" not in curve:
        return UNKNOWN
    return of_seeds(by_seed_trends(curve["noise by seed"]))


CHECKS = {
    "1": _claim1,
    "2a": _claim2a,
    "2b": _claim2b,
    "2c": _claim2c,
    "3": _claim3,
    "4a": _claim4a,
    "4b": _claim4b,
    "4c": _claim4c,
    "5": _claim5,
    "6a": _claim6a,
    "6b": _claim6b,
    "7": _claim7,
    "8a": _claim8a,
    "8b": _claim8b,
}


def tally(results: Results) -> dict[str, str]:
    """In how many cases, of a dataset and a kind of model, each claim holds; what is neither yes
    nor no is told apart."""
    lines = [line for r in results for line in verdicts(r)]
    out = dict[str, str]()
    for number, text in CLAIMS.items():
        counts = Counter(line["holds"] for line in lines if line["claim"] == number)
        if set(counts) == {UNKNOWN[0]}:
            out[f"{number}. {text}"] = UNKNOWN[0]
            continue
        words = [f"{counts['yes']} of {counts.total()} cases"]
        words += [f"{counts[holds]} {holds}" for holds in sorted(set(counts) - {"yes", "no"})]
        out[f"{number}. {text}"] = ", ".join(words)
    return out
