"""The page of Höltgen et al. 2021: findings first, then the tables of the paper, from the results
alone."""

import inspect
from collections.abc import Sequence
from typing import Any

import holdfast as hf
from experiments.experiment import Figures, Results
from experiments.hoeltgen2021 import reported
from experiments.hoeltgen2021.anogan import AnoGAN
from experiments.hoeltgen2021.outcomes import LOOSE
from experiments.hoeltgen2021.reported import METHODS, QUANTILES
from experiments.hoeltgen2021.setup import ABLATION, GREEDY, tuned
from experiments.hoeltgen2021.wgan import WGAN
from experiments.tables import cell, section, table, verdict

WHERE = {"same": "all on the spectral network", "mixed": "networks as in the paper"}
# what has its own options: their name in `Setting`, what it is, its class
MADE: dict[str, tuple[str, type]] = {
    "spectral": ("spectral network", hf.images.SpectralResNet),
    "plain": ("plain network", hf.images.PlainResNet),
    "autoencoder": ("autoencoder of VLK", hf.images.ConvAutoencoder),
    "vae": ("VAE of REVISE", hf.images.ConvVAE),
    "gan": ("GAN of the AnoGAN scores", WGAN),
    "vlk": ("VLK", hf.images.Prototype),
    "revise": ("REVISE", hf.images.REVISE),
    "anogan": ("AnoGAN", AnoGAN),
}
WAYS = {"conditioned": "pairs that all solve", "unconditioned": "pairs that each solves"}
AGAINST = ["setting", "L0", "reported", "L1", "reported", "failure %", "reported"]


def page(results: Results) -> list[str]:
    parts = (
        _asked,
        _findings,
        _table_1,
        _all_pairs,
        _table_2,
        _table_3,
        _table_4,
        _table_5,
        _realism,
        _promises,
    )
    return [line for r in results for part in parts for line in part(r)]


def brief(r: Figures) -> list[list[str]]:
    """Rows of the shortest table: networks, method, L0, L1, AnoGAN score and failures, on the pairs
    that all methods share. The paper's figures stand beside those on networks like its own; it has
    none on a single network."""
    out = list[list[str]]()
    for what in ("mixed", "same"):
        rows = r["table 1"][what]["common pairs"]
        for m in METHODS:
            values = {name: rows["conditioned"][m][name][0] for name in ("L0", "L1", "AGAN")}
            values["failure %"] = rows["unconditioned"][m]["failure %"][0]
            paper = reported.TABLE_1[m] if what == "mixed" else {}
            cells = [
                cell(value, paper[name][0] if paper else None) for name, value in values.items()
            ]
            out.append([WHERE[what], f"`{m}`", *cells])
    return out


def _asked(r: Figures) -> list[str]:
    pairs = r["pairs"]
    settings = r["settings"]
    accuracy = {
        k: f"{v['test']:.4f} (validation {v['validation']:.4f})" for k, v in r["accuracy"].items()
    }
    options = "; ".join(
        f"{what} {_options(settings[key], cls)}" for key, (what, cls) in MADE.items()
    )
    return section(
        f"## {r['title']}: what was asked",
        f"{pairs['sets']} sets of {pairs['images']} test images, each image to every other class: "
        f"{pairs['all']} "
        "pairs. DeDUCE and JSMA answer all of them. VLK and REVISE, and the AnoGAN scores of all "
        "methods, are measured "
        f"on {pairs['common']} of them: images {', '.join(map(str, pairs['common images']))} to "
        "every other class.",
        f"Accuracy on test images: spectral network {accuracy['spectral']}, plain network "
        f"{accuracy['plain']}. "
        f"Options, and in brackets the library's own where they differ: {options}; DeDUCE and "
        "JSMA, and every option "
        "not named, as in the library.",
    )


def _findings(r: Figures) -> list[str]:
    rows = [(f["finding"], verdict(f["holds"]), f["statistic"]) for f in r["findings"]]
    return section(f"### {r['title']}: findings", table(("finding", "holds", "measured"), rows))


def _table_1(r: Figures) -> list[str]:
    columns = ("AGAN", "L0", LOOSE, "L1", "failure %")
    tables = list[Any]()
    for pairs, methods in (("common pairs", METHODS), ("all pairs", tuple(GREEDY))):
        rows = list[Sequence[object]]()
        for what, where in WHERE.items():
            for way, which in WAYS.items():
                for m in methods:
                    row = r["table 1"][what][pairs][way][m]
                    rows.append(
                        (where, which, m, *(cell(row.get(name)) for name in columns), row["pairs"])
                    )
        for m in methods:
            if pairs == "common pairs":
                paper = reported.TABLE_1[m]
                which = ""
                count = sum(reported.COMMON)
            else:
                paper = reported.BOTH[m]
                which = WAYS["conditioned"]
                count = reported.BOTH_PAIRS
            rows.append(
                ("*reported*", which, m, *(cell(paper.get(name)) for name in columns), count)
            )
        tables += [
            f"**{pairs.capitalize()}**",
            table(("networks", "means over", "method", *columns, "pairs"), rows),
        ]
    return section(
        f"### {r['title']}: Table 1",
        "Mean over the test sets of the means over pairs ± the standard deviation over the sets. "
        "Reported are pairs that all four methods solve, with networks as in the paper.",
        *tables,
    )


def _all_pairs(r: Figures) -> list[str]:
    rows = list[Sequence[str]]()
    for name in ("L0", "L1", "iterations", "AGAN"):
        rows += [(name, key, *map(cell, found[name])) for key, found in r["quantiles"].items()]
        rows.append((name, "*reported, DeDUCE*", *map(cell, reported.ALL_PAIRS[name])))
    most = "; ".join(f"{key} {found['most']}" for key, found in r["quantiles"].items())
    by_target = [(key, *map(cell, found)) for key, found in r["by target"].items()]
    by_target.append(("*reported, DeDUCE*", *map(cell, reported.BY_TARGET)))
    return section(
        f"### {r['title']}: all pairs, no condition",
        table(("figure", "", "mean", "sd", *(f"{q:.0%}" for q in QUANTILES)), rows),
        f"Most iterations: {most}; reported {reported.MOST_ITERATIONS}. AGAN is of the common "
        "pairs.",
        "Mean L0 by wanted class:",
        table(("", *range(len(by_target[0]) - 1)), by_target),
    )


def _table_2(r: Figures) -> list[str]:
    rows = [
        (
            key,
            cell(found["alone"], digits=3),
            cell(found["in a batch"], digits=3),
            cell(reported.TABLE_2[key.split()[0]]),
        )
        for key, found in r["table 2"].items()
    ]
    return section(
        f"### {r['title']}: Table 2",
        "Seconds of one core per counterfactual: for pairs searched one at a time (± the "
        "standard deviation over "
        "pairs), and in the batches of the tables. Reported: one at a time, on a GPU, with "
        "networks four times as "
        "wide and REVISE by plain descent.",
        table(("method, network", "alone", "in a batch", "reported"), rows),
    )


def _table_3(r: Figures) -> list[str]:
    pairs = r["table 3"]["same"]["pairs"]
    rows = [
        (where, m, *map(_triple, r["table 3"][what][m]))
        for what, where in WHERE.items()
        for m in METHODS
    ]
    if [(i, t) for i, _, t in pairs] == [*reported.PAIRS_3]:
        rows += [("*reported*", m, *map(_triple, reported.TABLE_3[m])) for m in METHODS]
    head = ("networks", "method", *(f"{own} to {t} (image {i})" for i, own, t in pairs))
    return section(f"### {r['title']}: Table 3", "AGAN / L0 / L1.", table(head, rows))


def _table_4(r: Figures) -> list[str]:
    """Paper: hoeltgen2021 Table 4."""
    many = r["table 4"]["conditioned"]["mu = 1"]["pairs"]
    rows = [_against(r["table 4"], label, reported.TABLE_4[label]) for label in ABLATION]
    images = f"{r['settings']['ablation']} validation images, without momentum where none is named"
    words = f"DeDUCE on {images}; means over the {many} pairs that all settings solve."
    return section(f"### {r['title']}: Table 4", words, table(AGAINST, rows))


def _table_5(r: Figures) -> list[str]:
    """Paper: hoeltgen2021 Table 5."""
    limits = zip(reported.STEP_LIMITS.items(), r["settings"]["limits"], strict=True)
    budgets = ", ".join(
        f"{limit} for step {step:g} (there {paper})" for (step, paper), limit in limits
    )
    rows = [
        _against(r["table 5"], tuned(*key), paper, "unconditioned")
        for key, paper in reported.TABLE_5.items()
    ]
    how = f"plain descent on the plain network, {r['settings']['tuning']} validation images"
    words = (
        f"REVISE by {how}; iterations at most {budgets}. Means over the pairs that each setting "
        "solves."
    )
    return section(f"### {r['title']}: Table 5", words, table(AGAINST, rows))


def _realism(r: Figures) -> list[str]:
    kinds = list(next(iter(r["auroc"].values())))
    rows = [
        (score, *(cell(v, digits=3) for v in found.values())) for score, found in r["auroc"].items()
    ]
    rows.append(
        ("*reported, AnoGAN*", *(cell(reported.AUROC.get(kind), digits=3) for kind in kinds))
    )
    originals = cell(r["realism of images"]["originals"])
    again = cell(r["realism of images"]["reconstructions"])
    paper = {key: cell(value) for key, value in reported.ORIGINALS.items()}
    return section(
        f"### {r['title']}: how real images look",
        f"AnoGAN score of the originals {originals}, reported {paper['printed']}, by the arrays "
        f"{paper['arrays']}; of "
        f"their reconstructions by the VAE {again}, reported {paper['reconstructions']}. The "
        "final losses of the "
        f"restarts of an image are {cell(r['spread of AnoGAN'])} apart. Areas under the curve, "
        "test images against:",
        table(("score", *kinds), rows),
    )


def _promises(r: Figures) -> list[str]:
    total = dict[str, int]()
    for counts in r["promises"].values():
        for name, n in counts.items():
            total[name] = total.get(name, 0) + n
    listed = "; ".join(f"{name} {n}" for name, n in total.items())
    return section(
        f"### {r['title']}: promises",
        f"Violations in {len(r['promises'])} searches and repeats: {listed}.",
    )


# ---- cells


def _against(
    table: Figures, key: str, paper: Sequence[float], way: str = "conditioned"
) -> Sequence[str]:
    """L0, L1 and failures of a row, each beside what is reported."""
    row = table[way][key]
    failures = table["unconditioned"][key]["failure %"]
    values = (row["L0"][0], row["L1"][0], failures[0])
    return (key, *(cell(value) for pair in zip(values, paper, strict=True) for value in pair))


def _triple(value: Sequence[float | None] | None) -> str:
    return (
        "failed" if value is None else " / ".join(f"{v:g}" if v is not None else "-" for v in value)
    )


def _options(options: dict[str, Any], cls: type) -> str:
    """What was set, each beside the class's default if that differs."""
    own = {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
    words = list[str]()
    for key, value in options.items():
        default = "by the other options" if own[key] is None else f"{own[key]}"
        words.append(f"{key} {value}" + ("" if own[key] == value else f" ({default})"))
    return ", ".join(words) or "as in the library"
