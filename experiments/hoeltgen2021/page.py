"""The page of `hoeltgen2021`: reported beside measured, from the results alone."""

import inspect
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from experiments.hoeltgen2021 import reported as reported
from experiments.hoeltgen2021.pictures import names
from experiments.hoeltgen2021.reported import METHODS, QUANTILES
from experiments.hoeltgen2021.setup import ABLATION, GREEDY, tuned
from experiments.hoeltgen2021.tables import LOOSE
from holdfast.images.anogan.anogan import AnoGAN
from holdfast.images.anogan.wgan import WGAN
from holdfast.images.autoencoders import ConvAutoencoder, ConvVAE
from holdfast.images.classifier import PlainResNet, SpectralResNet
from holdfast.images.prototype import Prototype
from holdfast.images.revise import REVISE

WHERE = {"same": "all on the spectral network", "mixed": "networks as in the paper"}
MADE: dict[str, tuple[str, type]] = {  # what has options of its own: their name in `Setting`, what it is, its class
    "spectral": ("spectral network", SpectralResNet),
    "plain": ("plain network", PlainResNet),
    "autoencoder": ("autoencoder of VLK", ConvAutoencoder),
    "vae": ("VAE of REVISE", ConvVAE),
    "gan": ("GAN of the AnoGAN scores", WGAN),
    "vlk": ("VLK", Prototype),
    "revise": ("REVISE", REVISE),
    "anogan": ("AnoGAN", AnoGAN),
}
WAYS = {"conditioned": "pairs that all solve", "unconditioned": "pairs that each solves"}


def page(results: list[dict[str, Any]]) -> str:
    """Findings first, then the tables of the paper."""
    lines = ["# DeDUCE: counterfactual explanations at scale (Höltgen et al. 2021)", ""]
    for r in results:
        lines += [*_asked(r), "", *_findings(r), "", *_table_1(r), "", *_all_pairs(r), "", *_table_2(r)]
        lines += ["", *_table_3(r), "", *_table_4(r), "", *_table_5(r), "", *_realism(r), "", *_promises(r), ""]
    lines += [(files("experiments.hoeltgen2021") / "notes.md").read_text(encoding="utf-8").rstrip()]
    lines += ["", "## Pictures", "", *[f"![{name}]({name}.png)" for name in names(results)]]
    return "\n".join([*lines, ""])


def brief(r: dict[str, Any]) -> list[list[str]]:
    """Rows of the shortest table: networks, method, L0, L1, AnoGAN score and failures, on the pairs that all methods
    share. The paper's figures stand beside those on networks like its own; on one network there are none to compare."""
    out = list[list[str]]()
    for what in ("mixed", "same"):
        rows = r["table 1"][what]["common pairs"]
        for m in METHODS:
            values = {name: rows["conditioned"][m][name][0] for name in ("L0", "L1", "AGAN")}
            values["failure %"] = rows["unconditioned"][m]["failure %"][0]
            cells = [_number(value) for value in values.values()]
            if what == "mixed":
                told = [reported.TABLE_1[m][name][0] for name in values]
                cells = [f"{cell} ({theirs:.2f})" for cell, theirs in zip(cells, told, strict=True)]
            out.append([WHERE[what], f"`{m}`", *cells])
    return out


def _asked(r: dict[str, Any]) -> list[str]:
    pairs, how = r["pairs"], r["settings"]
    accuracy = {k: f"{v['test']:.4f} (validation {v['validation']:.4f})" for k, v in r["accuracy"].items()}
    options = "; ".join(f"{MADE[key][0]} {_options(how[key], MADE[key][1])}" for key in MADE)
    return [
        f"## {r['title']}: what was asked",
        "",
        f"{pairs['sets']} sets of {pairs['images']} test images, each image to every other class: {pairs['all']} "
        "pairs. DeDUCE and JSMA answer all of them. VLK and REVISE, and the AnoGAN scores of all methods, are measured "
        f"on {pairs['common']} of them: images {_listed(pairs['common images'])} to every other class.",
        "",
        f"Accuracy on test images: spectral network {accuracy['spectral']}, plain network {accuracy['plain']}. "
        f"Options, and in brackets the library's own where they differ: {options}; DeDUCE and JSMA, and every option "
        "not named, as in the library.",
    ]


def _findings(r: dict[str, Any]) -> list[str]:
    rows = [(f["finding"], "yes" if f["holds"] else "**no**", f["statistic"]) for f in r["findings"]]
    return [f"### {r['title']}: findings", "", *_table(("finding", "holds", "measured"), rows)]


def _table_1(r: dict[str, Any]) -> list[str]:
    lines = [
        f"### {r['title']}: Table 1",
        "",
        "Mean over the test sets of the means over pairs, with the standard deviation over the sets in brackets. "
        "Reported are pairs that all four methods solve, with networks as in the paper.",
        "",
    ]
    columns = ("AGAN", "L0", LOOSE, "L1", "failure %")
    for pairs, methods in (("common pairs", METHODS), ("all pairs", tuple(GREEDY))):
        rows = list[Sequence[str]]()
        for what, where in WHERE.items():
            for way, which in WAYS.items():
                for m in methods:
                    row = r["table 1"][what][pairs][way][m]
                    cells = [_cell(row.get(name)) for name in columns]
                    rows.append((where, which, m, *cells, str(row["pairs"])))
        for m in methods if pairs == "common pairs" else ():
            told = reported.TABLE_1[m]
            rows.append(("*reported*", "", m, *(_cell(told.get(name)) for name in columns), str(sum(reported.COMMON))))
        for m in methods if pairs == "all pairs" else ():
            told = reported.BOTH[m]
            cells = [_number(told.get(name)) for name in columns]
            rows.append(("*reported*", WAYS["conditioned"], m, *cells, str(reported.BOTH_PAIRS)))
        lines += [
            f"**{pairs.capitalize()}**",
            "",
            *_table(("networks", "means over", "method", *columns, "pairs"), rows),
        ]
        lines.append("")
    return lines[:-1]


def _all_pairs(r: dict[str, Any]) -> list[str]:
    lines = [f"### {r['title']}: all pairs, no condition", ""]
    rows = list[Sequence[str]]()
    for name in ("L0", "L1", "iterations", "AGAN"):
        for key, found in r["quantiles"].items():
            rows.append((name, key, *map(_number, found[name])))
        rows.append((name, "*reported, DeDUCE*", *map(_number, reported.ALL_PAIRS[name])))
    lines += _table(("figure", "", "mean", "sd", *(f"{q:.0%}" for q in QUANTILES)), rows)
    most = "; ".join(f"{key} {found['most']}" for key, found in r["quantiles"].items())
    lines += ["", f"Most iterations: {most}; reported {reported.MOST_ITERATIONS}. AGAN is of the common pairs.", ""]
    rows = [(key, *map(_number, found)) for key, found in r["by target"].items()]
    rows.append(("*reported, DeDUCE*", *map(_number, reported.BY_TARGET)))
    return [*lines, "Mean L0 by wanted class:", "", *_table(("", *map(str, range(len(rows[0]) - 1))), rows)]


def _table_2(r: dict[str, Any]) -> list[str]:
    rows = list[Sequence[str]]()
    for key, found in r["table 2"].items():
        told = reported.TABLE_2[key.split()[0]]
        rows.append((key, _cell(found["alone"], 3), _number(found["in a batch"], 3), _cell(told)))
    return [
        f"### {r['title']}: Table 2",
        "",
        "Seconds of one core per counterfactual: for pairs searched one at a time (standard deviation over pairs in "
        "brackets), and in the batches of the tables. Reported: one at a time, on a GPU, with networks four times as "
        "wide and REVISE by plain descent.",
        "",
        *_table(("method, network", "alone", "in a batch", "reported"), rows),
    ]


def _table_3(r: dict[str, Any]) -> list[str]:
    pairs = r["table 3"]["same"]["pairs"]
    rows = list[Sequence[str]]()
    for what, where in WHERE.items():
        rows += [(where, m, *map(_triple, r["table 3"][what][m])) for m in METHODS]
    if [(i, t) for i, _, t in pairs] == [*reported.PAIRS_3]:
        rows += [("*reported*", m, *map(_triple, reported.TABLE_3[m])) for m in METHODS]
    head = ("networks", "method", *(f"{own} to {t} (image {i})" for i, own, t in pairs))
    return [f"### {r['title']}: Table 3", "", "AGAN / L0 / L1.", "", *_table(head, rows)]


def _table_4(r: dict[str, Any]) -> list[str]:
    rows = [
        _against(label, r["table 4"], label, reported.TABLE_4[label]) for label in ABLATION
    ]  # fmt: skip
    many = r["table 4"]["conditioned"]["mu = 1"]["pairs"]
    return [
        f"### {r['title']}: Table 4",
        "",
        f"DeDUCE on {r['settings']['ablation']} validation images, without momentum where none is named; means over "
        f"the {many} pairs that all settings solve.",
        "",
        *_table(("setting", "L0", "reported", "L1", "reported", "failure %", "reported"), rows),
    ]


def _table_5(r: dict[str, Any]) -> list[str]:
    rows = [_against(tuned(*key), r["table 5"], tuned(*key), told, "unconditioned")
            for key, told in reported.TABLE_5.items()]  # fmt: skip
    limits = zip(reported.STEP_LIMITS.items(), r["settings"]["limits"], strict=True)
    told = ", ".join(f"{limit} for step {step:g} (there {theirs})" for (step, theirs), limit in limits)
    return [
        f"### {r['title']}: Table 5",
        "",
        f"REVISE by plain descent on the plain network, {r['settings']['tuning']} validation images; iterations at "
        f"most {told}. Means over the pairs that each setting solves.",
        "",
        *_table(("setting", "L0", "reported", "L1", "reported", "failure %", "reported"), rows),
    ]


def _realism(r: dict[str, Any]) -> list[str]:
    kinds = list(next(iter(r["auroc"].values())))
    rows: list[Sequence[str]] = [
        (score, *(_number(v, 3) for v in found.values())) for score, found in r["auroc"].items()
    ]
    rows.append(("*reported, AnoGAN*", *(_number(reported.AUROC.get(kind), 3) for kind in kinds)))
    originals, again = (_cell(r["realism of images"][key]) for key in ("originals", "reconstructions"))
    told = {key: _cell(value) for key, value in reported.ORIGINALS.items()}
    return [
        f"### {r['title']}: how real images look",
        "",
        f"AnoGAN score of the originals {originals}, reported {told['printed']}, by the arrays {told['arrays']}; of "
        f"their reconstructions by the VAE {again}, reported {told['reconstructions']}. The final losses of the "
        f"restarts of an image are {_number(r['spread of AnoGAN'])} apart. Areas under the curve, test images against:",
        "",
        *_table(("score", *kinds), rows),
    ]


def _promises(r: dict[str, Any]) -> list[str]:
    total = dict[str, int]()
    for counts in r["promises"].values():
        for name, n in counts.items():
            total[name] = total.get(name, 0) + n
    told = "; ".join(f"{name} {n}" for name, n in total.items())
    return [f"### {r['title']}: promises", "", f"Violations in {len(r['promises'])} searches and repeats: {told}."]


# ---- cells


def _against(label: str, table: Any, key: str, told: Sequence[float], way: str = "conditioned") -> Sequence[str]:
    """L0, L1 and failures of a row, each beside what is reported."""
    row, failures = table[way][key], table["unconditioned"][key]["failure %"]
    values = (row["L0"][0], row["L1"][0], failures[0])
    return (label, *(word for pair in zip(values, told, strict=True) for word in map(_number, pair)))


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = list(head)
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def _cell(value: Sequence[float | None] | None, digits: int = 2) -> str:
    """Mean and, in brackets, standard deviation."""
    if value is None or value[0] is None:
        return "-"
    return _number(value[0], digits) if value[1] is None else f"{value[0]:.{digits}f} ({value[1]:.{digits}f})"


def _triple(value: Sequence[float | None] | None) -> str:
    return "failed" if value is None else " / ".join(f"{v:g}" if v is not None else "-" for v in value)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _options(options: dict[str, Any], cls: type) -> str:
    """What was set, each beside what the class has by itself if that is something else."""
    own = {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
    words = [f"{key} {value}" + ("" if own[key] == value else f" ({_own(own[key])})") for key, value in options.items()]
    return ", ".join(words) or "as in the library"


def _own(default: Any) -> str:
    return "by the other options" if default is None else f"{default}"


def _listed(images: list[int]) -> str:
    return ", ".join(map(str, images))
