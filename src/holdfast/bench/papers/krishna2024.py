"""Krishna, Agarwal and Lakkaraju, "On the Trade-offs between Adversarial Robustness and Actionable Explanations".

The paper prints no tables; what it says of its figures is eight claims. Each is checked on every dataset, for logistic
regression and for a network of one hidden layer twice as wide as the rows. Columns are between 0 and 1 and all of them
may change; for each row the outcome is wanted that the plain model does not give it.
"""

from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from holdfast.bench.cells import Arrays, Cells, Job
from holdfast.bench.papers.krishna2024_parts import (
    DEPTHS,
    HARDER,
    LINEAR,
    MILD,
    SETTINGS,
    SWEPT,
    VAE,
    WIDE,
    WIDTHS,
    curves,
    linear_bounds,
    methods,
    neighbourhood,
    ntk_bounds,
    prepare,
    sweep,
    vae_bounds,
)
from holdfast.errors import untyped
from holdfast.plot_shift import validity_heatmap
from holdfast.plot_tradeoff import bounds_chart, neighbourhood_chart, tradeoff_chart
from holdfast.train.harden import EPSILONS
from holdfast.version import __version__

__all__ = ["SETTINGS", "charts", "page", "run"]
MODELS = POOL = 5  # networks for each epsilon
QUICK, QUICK_MODELS = "german_credit", 2
WORKERS = 2  # processes
ROWS = 100  # test rows that are asked about
PRINTED = 4  # methods of the paper; those after them are shown beside them
KINDS = {"logistic regression": 0, "network": 2}  # how many times as wide as the rows the hidden layer is
ATTACK = 0.1
CLAIMS = {
    1: "Validity falls with epsilon, and at 0.3 is less than half of what it was",
    2: "Answers become dearer with epsilon; most steadily for SCFE",
    3: "The trends do not depend on depth and width",
    4: "Differences of costs lie within the bounds",
    5: "Theorem 4: its condition is met by more than 90 % of the rows, and by all of these its conclusion",
    6: "Accuracy under attack rises with the epsilon of training",
    7: "Fewer points of a neighbourhood get the other outcome as epsilon grows",
    8: "Answers of SCFE are invalidated by noise more often as epsilon grows",
}


def run(name: str, cells: Cells, *, models: int = MODELS, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
    """One dataset: curves, bounds, architectures, and the verdict on every claim."""
    setting, task = SETTINGS[name], prepare(name, seed)
    asked = min(rows or ROWS, ROWS)
    cells = replace(cells, settings={"seed": seed, "version": __version__})
    about = [setting.epochs, models, asked, [repr(m) for m in methods().values()]]
    half = -(-asked // 2)
    jobs: list[Job] = [(f"{name}/sweep", partial(sweep, task, setting.epochs, half, seed), asked)]
    for kind, times in KINDS.items():
        hidden = (times * task.width,) * bool(times)
        jobs.append(
            (f"{name}/curves {kind}", partial(curves, task, hidden, setting.epochs, models, asked, seed), about)
        )
    jobs += [
        (f"{name}/ntk bounds", partial(ntk_bounds, task, seed), None),
        (f"{name}/vae bounds", partial(vae_bounds, task, setting.epochs, asked, seed), [asked, *MILD]),
        (f"{name}/neighbourhood", partial(neighbourhood, task, setting.epochs, seed), setting.epochs),
        (f"{name}/linear bounds", partial(linear_bounds, task, seed), None),
    ]
    shapes, *curve, wide, latent, around, linear = cells.together(jobs, WORKERS)
    found = dict(zip(KINDS, curve, strict=True))
    result = {
        "paper": "krishna2024",
        "dataset": name,
        "title": setting.title,
        "epsilon": list(EPSILONS),
        "methods": list(methods()),
        "curves": {kind: {key: _plain(value) for key, value in cell.items()} for kind, cell in found.items()},
        "place": _plain(around["place"]),
        "granted": ["".join("01"[int(v)] for v in line) for line in around["granted"]],
        "shown": {f"{label} {e:g}": _plain(cell[f"shown {e:g}"]) for label, cell in
                  (("linear", linear), ("NTK", wide)) for e in HARDER},
        "linear bounds": _lines(linear, LINEAR),
        "ntk bounds": _lines(wide, WIDE),
        "vae bounds": _lines(latent, VAE),
        "sweep": {key: _plain(value) for key, value in shapes.items()},
        "rows": {"train": len(task.X), "test": len(task.test_X), "asked": asked},
        "columns": task.width,
        "epochs": setting.epochs,
        "models": models,
        "seed": seed,
        "seconds": {
            label: round(float(cell["seconds"]), 1)
            for label, cell in {**found, "linear bounds": linear, "ntk bounds": wide, "vae bounds": latent,
                                "sweep": shapes, "neighbourhood": around}.items()
        },
        "version": __version__,
    }  # fmt: skip
    return result | {"claims": verdicts(result)}


def _plain(values: Any) -> Any:
    """Lists with None where there is no number."""
    if np.ndim(values):
        return [_plain(part) for part in values]
    return round(float(values), 5) if np.isfinite(values) else None


def _lines(cell: Arrays, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [dict(zip(names, line, strict=True)) for line in _plain(cell["rows"])]


# ---- claims


def verdicts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Each claim for each kind of model: does it hold, and by which statistic."""
    out = list[dict[str, Any]]()
    for kind in KINDS:
        curve = {key: _numbers(value) for key, value in result["curves"][kind].items()}
        for number, check in CHECKS.items():
            holds, statistic = check(kind, curve, result)
            out.append({"claim": number, "model": kind, "holds": holds, "statistic": statistic})
    return out


def _numbers(value: Any) -> np.ndarray[Any, Any]:
    return np.array(value, dtype=np.float64)


def rank_correlation(a: Any, b: Any) -> float:
    """Spearman's, over the pairs that are there; 0 where one of them does not vary."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    there = np.isfinite(a) & np.isfinite(b)
    if there.sum() < 3 or len(set(a[there])) < 2 or len(set(b[there])) < 2:
        return 0.0
    return float(untyped("scipy.stats").spearmanr(a[there], b[there]).statistic)


def rises(values: Any) -> bool:
    """With epsilon: by a rank correlation above 0.8, or never falling and ending higher.

    The second, since values that rise and then stay (all models give one class from some epsilon on) have many ties,
    for which a rank correlation stays short of 1.
    """
    values = np.asarray(values, dtype=np.float64)
    known = values[np.isfinite(values)]
    if len(known) < 3:
        return False
    return rank_correlation(EPSILONS, values) > 0.8 or bool((np.diff(known) >= 0).all() and known[-1] > known[0])


def falls(values: Any) -> bool:
    """The same downwards."""
    return rises(-np.asarray(values, dtype=np.float64))


Verdict = tuple[bool | None, str]
Curve = dict[str, np.ndarray[Any, Any]]


def _claim1(kind: str, curve: Curve, result: dict[str, Any]) -> Verdict:
    words, good = list[str](), list[bool]()
    for name, valid in zip(result["methods"], curve["validity"], strict=True):
        last = valid[np.isfinite(valid)][-1] if np.isfinite(valid).any() else np.nan
        rho = rank_correlation(EPSILONS, valid)
        good.append(bool(falls(valid) and last < 0.5 * valid[0]))
        words.append(f"{name}: {valid[0]:.2f} to {last:.2f}, rank correlation {rho:.2f}{_mark(good[-1])}")
    return all(good[:PRINTED]), "; ".join(words)


def _claim2(kind: str, curve: Curve, result: dict[str, Any]) -> Verdict:
    words, good = list[str](), list[bool]()
    spread = dict[str, float]()
    for name, dearer, sd in zip(result["methods"], curve["dearer"], curve["dearer sd"], strict=True):
        rho = rank_correlation(EPSILONS, dearer)
        good.append(rises(dearer))
        more = dearer[1:][np.isfinite(dearer[1:])]
        words.append(
            f"{name}: dearer at {int((more > 0).sum())} of the {len(more)} epsilons that answer, at most by "
            f"{float(np.nanmax(dearer)):+.3f}, rank correlation {rho:.2f}{_mark(good[-1])}"
        )
        known = sd[1:][np.isfinite(sd[1:])]
        spread[name] = float(known.mean()) if len(known) else np.inf
    steady = min(list(spread)[:PRINTED], key=spread.__getitem__)
    return all(good[:PRINTED]) and steady == "SCFE", "; ".join([*words, f"least spread: {steady}"])


def _claim3(kind: str, curve: Curve, result: dict[str, Any]) -> Verdict:
    if kind != "network":
        return None, "networks only"
    words, good = list[str](), list[bool]()
    for what, shapes in (("depth", DEPTHS), ("width", WIDTHS)):
        values = _numbers(result["sweep"][what])  # (shapes, methods, epsilons, figures)
        for i, name in enumerate(SWEPT):
            lost, dearer = values[:, i, 0, 0] - values[:, i, 1, 0], values[:, i, 1, 1]
            known = dearer[np.isfinite(dearer)]
            good.append(bool((lost > 0).all() and (known > 0).all()))
            each, more = (", ".join("-" if np.isnan(v) else f"{v:.2f}" for v in part) for part in (lost, dearer))
            words.append(
                f"{what} {list(shapes)}: {name} loses {each} of its validity (rank correlation "
                f"{rank_correlation(shapes, lost):.2f}), answers dearer by {more}{_mark(good[-1])}"
            )
    return all(good), "; ".join(words)


def _mark(holds: bool) -> str:
    return "" if holds else " (no)"


def _claim4(kind: str, curve: Curve, result: dict[str, Any]) -> Verdict:
    pairs, violated, printed = curve["bounds"]
    words = [f"{int(violated)} of {int(pairs)} violate the corrected bound, {int(printed)} the printed one"]
    bad = violated
    if kind == "logistic regression":
        lines = result["linear bounds"]
        worst = max((line["B1 violated"] or 0) + (line["B1' violated"] or 0) for line in lines)
        told = max(line["printed violated"] or 0 for line in lines)
        empty = np.mean([line["printed vacuous"] for line in lines if line["printed vacuous"] is not None] or [np.nan])
        words.append(
            f"plain gradient descent: corrected violated by {worst:.0%}; printed Theorem 1 vacuous for {empty:.0%}, "
            f"taken literally violated by up to {told:.0%}"
        )
        bad += worst
    else:
        worst = max(line["B2 violated"] or 0 for line in result["ntk bounds"])
        told = max(line["printed violated"] or 0 for line in result["ntk bounds"])
        words.append(f"NTK: corrected violated by {worst:.0%}, printed by up to {told:.0%}")
        bad += worst
    theirs = max((line["violated"] or 0) for line in result["vae bounds"] if line["kind"] == float(kind == "network"))
    words.append(f"C-CHVAE: Theorem 3 violated by {theirs:.0%}")
    return bool(bad + theirs == 0), "; ".join(words)


def _claim5(kind: str, curve: Curve, result: dict[str, Any]) -> Verdict:
    name, lines = ("Theorem 4", result["linear bounds"]) if kind != "network" else ("Theorem 5", result["ntk bounds"])
    lines = [line for line in lines if line[f"{name} condition"] is not None]
    if not lines:
        return None, "no row is refused by both models"
    met = min(line[f"{name} condition"] for line in lines)
    true = [line[f"{name} conclusion"] for line in lines if line[f"{name} conclusion"] is not None]
    least = min(true, default=float("nan"))
    words = (
        f"{name}: condition met by at least {met:.0%}, conclusion true for {least:.0%} to {max(true, default=0):.0%}"
    )
    return bool(met > 0.9 and least == 1), words


def _claim6(kind: str, curve: Curve, result: dict[str, Any]) -> Verdict:
    kept = curve["attacked"]
    rho = rank_correlation(EPSILONS, kept)
    least = "plain model" if kept.argmin() == 0 else f"epsilon {EPSILONS[int(kept.argmin())]:g}"
    words = f"{kept[0]:.3f} without, {kept.max():.3f} at best; lowest: {least}; rank correlation {rho:.2f}"
    return bool(rises(kept) and kept.argmin() == 0), words


def _claim7(kind: str, curve: Curve, result: dict[str, Any]) -> Verdict:
    share = curve["nearby"]
    rho = rank_correlation(EPSILONS, share)
    return falls(share), f"share {share[0]:.3f} to {share[-1]:.3f}, rank correlation {rho:.2f}"


def _claim8(kind: str, curve: Curve, result: dict[str, Any]) -> Verdict:
    noise = curve["noise"][result["methods"].index("SCFE")]
    rho = rank_correlation(EPSILONS, noise)
    there = noise[np.isfinite(noise)]
    ends = f"{there[0]:.3f} to {there[-1]:.3f}" if len(there) else "no answers"
    return rises(noise), f"{ends}, rank correlation {rho:.2f}"


CHECKS = {1: _claim1, 2: _claim2, 3: _claim3, 4: _claim4, 5: _claim5, 6: _claim6, 7: _claim7, 8: _claim8}


def tally(results: list[dict[str, Any]]) -> dict[str, str]:
    """In how many cases, of a dataset and a kind of model, each claim holds."""
    out = dict[str, str]()
    for number, text in CLAIMS.items():
        told = [line["holds"] for r in results for line in r["claims"] if line["claim"] == number]
        known = [holds for holds in told if holds is not None]
        out[f"{number}. {text}"] = f"{sum(known)} of {len(known)} cases"
    return out


# ---- pages


def page(results: list[dict[str, Any]]) -> str:
    """Verdicts first, then the figures."""
    lines = ["# Trade-offs between adversarial robustness and actionable explanations (Krishna et al.)", ""]
    lines += ["The paper has figures and no tables: trends can be compared, sizes cannot.", "", "## Claims", ""]
    lines += ["| claim | holds in |", "|---|---|", *(f"| {text} | {share} |" for text, share in tally(results).items())]
    lines += ["", "| claim | dataset | model | holds | measured |", "|---|---|---|---|---|"]
    for number, text in CLAIMS.items():
        for r in results:
            for line in r["claims"]:
                if line["claim"] == number and line["holds"] is not None:
                    word = "yes" if line["holds"] else "**no**"
                    what = f"{number}. {text}"
                    lines.append(f"| {what} | {r['title']} | {line['model']} | {word} | {line['statistic']} |")
    for r in results:
        for kind, curve in r["curves"].items():
            lines += ["", f"## {r['title']}: {kind}", ""]
            lines += [f"| | {' | '.join(f'{e:g}' for e in r['epsilon'])} |", "|---|" + "---|" * len(r["epsilon"])]
            for key in ("accuracy", "accuracy sd", "attacked", "attacked sd", "slope", "nearby"):
                lines.append(f"| {ROW_NAMES[key]} | {_cells(curve[key])} |")
            for key in (
                "validity",
                "validity sd",
                "validity, twice the budget",
                "cost",
                "cost of attempts",
                "dearer",
                "survives",
                "noise",
            ):
                for name, values in zip(r["methods"], curve[key], strict=True):
                    lines.append(f"| {ROW_NAMES[key]}: {name} | {_cells(values)} |")
            lines += ["", f"Recommended epsilon: {curve['recommended']:g}."]
        for what in ("linear bounds", "ntk bounds", "vae bounds"):
            names = list(r[what][0])
            lines += ["", f"### {r['title']}: {what}", "", f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
            lines += [f"| {_cells(line.values())} |" for line in r[what]]
    lines += ["", (files("holdfast.bench.papers") / "krishna2024.md").read_text(encoding="utf-8").rstrip()]
    names = [f"{r['dataset']}-{part}" for r in results for part in PICTURES]
    lines += ["", "## Pictures", "", *[f"![{name}]({name}.svg)" for name in names]]
    return "\n".join([*lines, ""])


PICTURES = ("logistic", "network", "bounds", "crossing", "around")


ROW_NAMES = {
    "accuracy": "accuracy",
    "accuracy sd": "its sd over the networks",
    "attacked": f"accuracy under PGD of {ATTACK:g}",
    "attacked sd": "its sd over the networks",
    "slope": "length of the gradient",
    "nearby": "neighbours with the other outcome",
    "validity": "validity",
    "validity sd": "sd of validity over the networks",
    "validity, twice the budget": "validity, twice the budget",
    "cost": "cost (l2)",
    "cost of attempts": "cost with attempts that fail",
    "dearer": "dearer",
    "survives": "survives retraining",
    "noise": "invalidated by noise",
}


def _cells(values: Any) -> str:
    return " | ".join("-" if v is None else f"{v:.3g}" for v in values)


def charts(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each dataset the curves of both kinds of models, differences of costs beside their bounds, and for networks
    answers on models of other epsilons, and what is granted around one row."""
    out = dict[str, Any]()
    for r in results:
        for kind, curve in r["curves"].items():
            parts = list[pd.DataFrame]()
            for i, name in enumerate(r["methods"]):
                columns = {key: _numbers(curve[key])[i] for key in ("validity", "cost", "dearer", "survives")}
                columns |= {"accuracy": _numbers(curve["accuracy"]), "attacked accuracy": _numbers(curve["attacked"])}
                parts.append(pd.DataFrame({"method": name, "epsilon": r["epsilon"], **columns}))
            name = f"{r['dataset']}-{kind.split()[0]}"
            out[name] = tradeoff_chart(pd.concat(parts, ignore_index=True), curve["recommended"], ATTACK)
        curve = r["curves"]["network"]
        boxes = [pd.DataFrame(rows, columns=["difference", "bound"]).assign(case=c) for c, rows in r["shown"].items()]
        names = [f"{e:g}" for e in r["epsilon"]]
        a, b = _numbers(r["place"])
        around = [
            pd.DataFrame(
                {"a": a, "b": b, "epsilon": e, "granted": np.array([*marks]) == "1", "asked": np.arange(len(a)) == 0}
            )
            for e, marks in zip(r["epsilon"], r["granted"], strict=True)
        ]
        out[f"{r['dataset']}-bounds"] = bounds_chart(pd.concat(boxes, ignore_index=True))
        out[f"{r['dataset']}-crossing"] = validity_heatmap(_numbers(curve["crossing"]), names)
        out[f"{r['dataset']}-around"] = neighbourhood_chart(pd.concat(around, ignore_index=True))
    return out
