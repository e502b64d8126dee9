"""The eight claims of Krishna et al. 2024: when each holds, and the words that say why."""

from typing import Any

import numpy as np

from experiments.experiment import Figures, Results
from experiments.krishna2024.curves import DEPTHS, SWEPT, WIDTHS
from experiments.krishna2024.setup import KINDS
from holdfast._core.checks import untyped
from holdfast.training.adversarial import EPSILONS

PRINTED = 4  # methods of the paper; the others are shown beside them
TREND = 0.8  # a rank correlation beyond it is a trend
CLAIMS = {
    1: "Validity falls with epsilon, and at 0.3 is less than half of what it was",
    2: "Answers become more expensive with epsilon; most steadily for SCFE",
    3: "The trends do not depend on depth and width",
    4: "Differences of costs lie within the bounds",
    5: "Theorem 4: its condition is met by more than 90 % of the rows, and by all of these its "
    "conclusion",
    6: "Accuracy under attack rises with the epsilon of training",
    7: "Fewer points of a neighbourhood get the other outcome as epsilon grows",
    8: "Answers of SCFE are invalidated by noise more often as epsilon grows",
}

Verdict = tuple[bool | None, str]  # None: open, since nothing decides it
Curve = dict[str, np.ndarray[Any, Any]]


def numbers(value: Any) -> np.ndarray[Any, Any]:
    return np.array(value, dtype=np.float64)


def verdicts(result: Figures) -> list[Figures]:
    """Each claim for each kind of model: does it hold, and by which statistic."""
    out = list[Figures]()
    for kind in KINDS:
        curve = {key: numbers(value) for key, value in result["curves"][kind].items()}
        for number, check in CHECKS.items():
            if number == 3 and kind != "network":  # a linear model has no depth
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
    return all(good[:PRINTED]), "; ".join(words)


def _claim2(kind: str, curve: Curve, result: Figures) -> Verdict:
    words = list[str]()
    good = list[bool]()
    spread = dict[str, float]()
    for name, rise, sd in zip(
        result["methods"], curve["extra cost"], curve["extra cost sd"], strict=True
    ):
        good.append(rises(rise))
        more = rise[1:][np.isfinite(rise[1:])]
        words.append(
            f"{name}: more expensive at {int((more > 0).sum())} of the {len(more)} epsilons that "
            "answer, at most by "
            f"{float(np.nanmax(rise)):+.3f}, {trend(rise)}{_mark(good[-1])}"
        )
        known = sd[1:][np.isfinite(sd[1:])]
        spread[name] = float(known.mean()) if len(known) else np.inf
    steady = min(list(spread)[:PRINTED], key=spread.__getitem__)
    return all(good[:PRINTED]) and steady == "SCFE", "; ".join([*words, f"least spread: {steady}"])


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
        return None, "; ".join(
            ["no row is answered by both models in some networks: costs are not known", *words]
        )
    return all(good), "; ".join(words)


def _mark(holds: bool) -> str:
    return "" if holds else " (no)"


def _claim4(kind: str, curve: Curve, result: Figures) -> Verdict:
    pairs, violated, printed = curve["bounds"]
    words = [
        f"{int(violated)} of {int(pairs)} violate the corrected bound, {int(printed)} the printed "
        "one"
    ]
    bad = violated
    if kind == "logistic regression":
        lines = result["linear bounds"]
        worst = max((line["B1 violated"] or 0) + (line["B1' violated"] or 0) for line in lines)
        printed_worst = max(line["printed violated"] or 0 for line in lines)
        empty = np.mean(
            [line["printed vacuous"] for line in lines if line["printed vacuous"] is not None]
            or [np.nan]
        )
        words.append(
            f"plain gradient descent: corrected violated by {worst:.0%}; printed Theorem 1 "
            f"vacuous for {empty:.0%}, "
            f"taken literally violated by up to {printed_worst:.0%}"
        )
        bad += worst
    else:
        worst = max(line["B2 violated"] or 0 for line in result["ntk bounds"])
        printed_worst = max(line["printed violated"] or 0 for line in result["ntk bounds"])
        words.append(
            f"NTK: corrected violated by {worst:.0%}, printed by up to {printed_worst:.0%}"
        )
        bad += worst
    of_kind = [line for line in result["vae bounds"] if line["kind"] == float(kind == "network")]
    latent = max(line["violated"] or 0 for line in of_kind)
    words.append(f"C-CHVAE: Theorem 3 violated by {latent:.0%}")
    return bool(bad + latent == 0), "; ".join(words)


def _claim5(kind: str, curve: Curve, result: Figures) -> Verdict:
    name = "Theorem 5" if kind == "network" else "Theorem 4"
    every = result["ntk bounds" if kind == "network" else "linear bounds"]
    lines = [line for line in every if line[f"{name} condition"] is not None]
    if not lines:
        return None, "no row is refused by both models"
    met = min(line[f"{name} condition"] for line in lines)
    true = [line[f"{name} conclusion"] for line in lines if line[f"{name} conclusion"] is not None]
    least = min(true, default=float("nan"))
    words = (
        f"{name}: condition met by at least {met:.0%}, conclusion true for {least:.0%} to "
        f"{max(true, default=0):.0%}"
    )
    return bool(met > 0.9 and least == 1), words


def _claim6(kind: str, curve: Curve, result: Figures) -> Verdict:
    kept = curve["attacked"]
    least = "plain model" if kept.argmin() == 0 else f"epsilon {EPSILONS[int(kept.argmin())]:g}"
    words = f"{kept[0]:.3f} without, {kept.max():.3f} at best; lowest: {least}; {trend(kept)}"
    return bool(rises(kept) and kept.argmin() == 0), words


def _claim7(kind: str, curve: Curve, result: Figures) -> Verdict:
    share = curve["nearby"]
    everyone = curve["nearby, all rows"]
    words = f"share {share[0]:.3f} to {share[-1]:.3f}, {trend(share)}"
    all_words = f"over all rows {everyone[0]:.3f} to {everyone[-1]:.3f}, {trend(everyone)}"
    return falls(share), f"{words}; {all_words}"


def _claim8(kind: str, curve: Curve, result: Figures) -> Verdict:
    noise = curve["noise"][result["methods"].index("SCFE")]
    there = noise[np.isfinite(noise)]
    ends = f"{there[0]:.3f} to {there[-1]:.3f}" if len(there) else "no answers"
    return rises(noise), f"{ends}, {trend(noise)}"


CHECKS = {
    1: _claim1,
    2: _claim2,
    3: _claim3,
    4: _claim4,
    5: _claim5,
    6: _claim6,
    7: _claim7,
    8: _claim8,
}


def tally(results: Results) -> dict[str, str]:
    """In how many cases, of a dataset and a kind of model, each claim holds."""
    out = dict[str, str]()
    for number, text in CLAIMS.items():
        verdicts = [
            line["holds"] for r in results for line in r["claims"] if line["claim"] == number
        ]
        is_open = verdicts.count(None)
        share = f"{verdicts.count(True)} of {len(verdicts)} cases"
        out[f"{number}. {text}"] = f"{share}, {is_open} open" if is_open else share
    return out
