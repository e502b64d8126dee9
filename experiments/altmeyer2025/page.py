"""The page of Altmeyer et al. 2025: measured beside reported."""

from typing import Any

from experiments.altmeyer2025.compare import ATTACKS, ENERGIES
from experiments.altmeyer2025.comparison import FREE, HELD
from experiments.altmeyer2025.grid import ITERATIONS
from experiments.altmeyer2025.setup import GUARDED, LABELS
from experiments.experiment import Figures, Results
from experiments.tables import cell, section, table, verdict

COLUMNS = {  # case, metric, and the network that is compared with the plain one
    "implausibility": (FREE, "implausibility", "full"),
    "MMD": (FREE, "mmd", "full"),
    "cost, protected": (HELD, "cost", GUARDED),
    "cost": (FREE, "cost", "full"),
}
REPORTED = list(COLUMNS)[:3]  # in the order of the entries of `reported`
INTRO = (
    "Percent less than the plain network. *of means*: of the means over all rounds that a "
    "network solves; *by "
    "rounds*: mean of the percentages over the rounds that both networks solve, with their "
    "standard deviation, and "
    "how many rounds these are; * the difference is sure at 99 %. Reported: later version (the "
    "same star) / "
    "earlier version."
)
OF_MEANS = "Percent less implausibility, of means; rounds one by one are not kept for this table."


def page(results: Results) -> list[str]:
    lines = [INTRO, ""]
    head = ["data", "of means", "by rounds", "rounds both solve", "reported", "taught", "plain"]
    for i, column in enumerate(REPORTED):
        lines += section(
            f"## {column.capitalize()}", table(head, [_reduction(r, i, column) for r in results])
        )
    lines += section(
        "## Statements", table(["statement", "data", "holds", "measured"], _statements(results))
    )
    lines += _networks(results)
    lines += section(
        "## Parts of the objective",
        "Percent less implausibility, of means / by rounds.",
        table(
            ["data", *LABELS[1:]],
            [
                [r["title"], *(_both(r["ablation"][k]["implausibility"]) for k in LABELS[1:])]
                for r in results
            ],
        ),
    )
    lines += section(
        "## By the weight of the energy in the evaluation",
        OF_MEANS,
        table(
            ["data", *(f"{e:g}" for e in ENERGIES)], [[r["title"], *_by_energy(r)] for r in results]
        ),
    )
    for r in results:
        if "grid" in r:
            lines += _grid(r)
        if "placements" in r:
            rows = [[tuple(p["middle"]), cell(p["reduction"])] for p in r["placements"]]
            lines += section(
                "## Linearly separable blobs elsewhere",
                OF_MEANS,
                table(["middle", "reduction"], rows),
            )
    return lines


def brief(r: Figures) -> list[str]:
    """A row of the shortest table: percent less implausibility, discrepancy, and cost with a
    protected feature, of means and by rounds, each beside what the later version of the paper
    reports; accuracy, plain and taught."""
    cells = [r["title"]]
    for i, column in enumerate(REPORTED):
        later = r["reported"]["later"][i]
        cells.append(f"{_both(r['measured'][column], 1)} ({later[0]:.1f}{_star(later[2])})")
    return [*cells, f"{r['accuracy']['plain']:.3f}", f"{r['accuracy']['full']:.3f}"]


def _reduction(r: Figures, i: int, column: str) -> list[str]:
    found = r["measured"][column]
    later = r["reported"]["later"][i]
    earlier = r["reported"]["earlier"][i]
    return [
        r["title"],
        f"{cell(found['of means'])}{_star(found['significant'])}",
        cell([found["reduction"], found["se"]]),
        f"{found['rounds']:.0f} of {r['rounds']}",
        f"{later[0]:.2f}{_star(later[2])} / {earlier[0]:.2f}",
        *(f"{found[key]:.4g}" if found[key] is not None else "-" for key in ("taught", "plain")),
    ]


def _statements(results: Results) -> list[list[str]]:
    """Findings about the same thing one after the other."""
    lines = [(line, r) for r in results for line in r["statements"]]
    order = list(dict.fromkeys(line["statement"] for line, _ in lines))
    lines.sort(key=lambda pair: order.index(pair[0]["statement"]))
    return [
        [line["statement"], r["title"], verdict(line["holds"]), line["statistic"]]
        for line, r in lines
    ]


def _networks(results: Results) -> list[str]:
    attacks: list[float] = results[0]["attacks"]
    # to the attack of the paper
    nearest = min(range(len(attacks)), key=lambda i: abs(attacks[i] - 0.03))
    head = [
        "data",
        "accuracy, plain",
        "taught",
        "reported",
        f"FGSM {ATTACKS[nearest]:.3f}, plain",
        "taught",
        "reported (0.03)",
        "validity, plain",
        "taught",
        "leans on the protected, plain",
        "taught and protected",
    ]
    rows = list[list[str]]()
    less = list[str]()
    for r in results:
        reported = r["reported"]["accuracy"]
        accuracy = [r["accuracy"][key] for key in ("plain", "full")]
        validity = [r["validity"][FREE][key] for key in ("plain", "full")]
        kept = [r["attacked"][key]["FGSM"][nearest] for key in ("plain", "full")]
        if kept[1] < kept[0]:
            less.append(r["title"])
        cells = [r["title"], *_three(accuracy), f"{reported[1]} / {reported[0]}"]
        cells += [*_three(kept), f"{reported[3]} / {reported[2]}", *_three(validity)]
        rows.append(
            [
                *cells,
                *(
                    "{:.3g} [{:.3g}, {:.3g}]".format(*r["sensitivity"][k])
                    for k in ("plain", GUARDED)
                ),
            ]
        )
    words = (
        f"keeps less under this attack than the plain one on {len(less)} of {len(results)} datasets"
    )
    where = f": {', '.join(less)}" if less else ""
    return section("## Networks", table(head, rows), f"The taught network {words}{where}.")


def _three(values: list[float]) -> list[str]:
    return [f"{v:.3f}" for v in values]


def _both(found: Figures, digits: int = 2) -> str:
    """A reduction of means, and by the rounds that both networks solve."""
    of_means = f"{cell(found['of means'], digits=digits)}{_star(found['significant'])}"
    return f"{of_means} / {cell(found['reduction'], digits=digits)}"


def _by_energy(r: Figures) -> list[str]:
    pairs = zip(r["by energy"]["full"], r["by energy"]["plain"], strict=True)
    return [cell(None if a is None or b is None else 100 * (1 - a / b)) for a, b in pairs]


def _grid(r: Figures) -> list[str]:
    found: dict[Any, Any] = {
        (c["generator"], c["energy"], c["steps"]): c for c in r["grid"]["generators"]
    }
    generators = [
        [
            kind,
            f"{energy:g}",
            *(cell(found[kind, energy, steps]["reduction"]) for steps in ITERATIONS),
        ]
        for kind, energy in dict.fromkeys(key[:2] for key in found)
    ]
    settings = [(f"{c['setting']} {c['value']:g}", c) for c in r["grid"]["settings"]]
    settings += [("burn-in 0.5", r["grid"]["burn-in"]), ("100 counterfactuals", r["grid"]["few"])]
    rows = [
        [
            label,
            cell(c["reduction"]),
            *(cell(c[key], digits=3) for key in ("validity", "accuracy", "size")),
        ]
        for label, c in settings
    ]
    return section(
        f"## Grid search: {r['title']}",
        OF_MEANS,
        table(["generator", "energy", *(f"{s} steps" for s in ITERATIONS)], generators),
        table(["setting", "reduction", "validity", "accuracy", "size of energies"], rows),
    )


def _star(sure: bool | None) -> str:
    return "*" if sure else ""
