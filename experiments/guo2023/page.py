"""The page of Guo et al. 2023: verdicts, tables and curves, made of records."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from experiments.cell import Figures
from experiments.guo2023 import attack, methods
from experiments.guo2023.findings import findings
from experiments.guo2023.measure import IN_RANGE, RAW
from experiments.guo2023.records import column, points_of, records
from experiments.guo2023.reported import KNOWN
from experiments.guo2023.task import DATASETS, REAL
from experiments.paper import Found, Pictures
from experiments.records import Record
from experiments.tables import section, table
from holdfast.render.charts.shift import data_size, pareto, strength, validity_heatmap

INTRO = (
    "Networks of one year, school or table give answers, and the networks of all others judge "
    "them. *Raw* answers have\n"
    "numbers as they were proposed, as in the paper; *in range* they are kept inside the range of "
    "the data, which is what a\n"
    "person can hand in and what `recourse` returns. Measured are means over seeds with a 95 % "
    "interval; the paper's ± is\n"
    "over subsets, of one run."
)
TITLES = {
    "robust validity": "robust validity: answers that the networks of other subsets accept",
    "validity": "validity: answers that the network they were made for accepts",
    "proximity": "proximity: l1 distance between row and answer, another category counts 2",
}
NAMES = {
    "german_credit": "German Credit",
    "student": "Student",
    "sba_loan": "SBA loans",
    "covariate_shift": "Simulated covariate shift",
    "label_shift": "Simulated label shift",
}
HEAD = (
    "method",
    "paper",
    "raw",
    "95 % interval",
    "seeds",
    "lowest to highest",
    "in range",
    "verdict",
)
BRIEF = (
    "printed",
    "counternet",
    "adam",
    "defaults",
    "plain-defaults",
    "vanilla",
    "roar-lime",
    "rbr",
)
Table = dict[tuple[str, str, str], Record]  # dataset, row and column of the paper's tables


def by_place(all_records: list[Record]) -> Table:
    """The records of tables, not those of curves."""
    return {
        (one.dataset, one.row, one.column): one
        for one in all_records
        if one.table.startswith("Table")
    }


def page(found: Found) -> list[str]:
    made = records(found)
    tables = by_place(made)
    lines = [INTRO, ""]
    lines += section(
        "## What follows", table(["statement", "verdict", "measured"], findings(tables))
    )
    for dataset in DATASETS:
        lines += [f"## {NAMES[dataset]}", ""]
        missing = [cell for cell in found.missing_of(dataset) if cell.group != "check"]
        if missing:
            lines += [f"{len(missing)} cells are not measured yet.", ""]
        for figure, title in TITLES.items():
            lines += section(f"### {NAMES[dataset]}: {title}", _figure(tables, dataset, figure))
        lines += section(f"### {NAMES[dataset]}: prediction", _prediction(tables, dataset))
        if dataset in REAL:
            lines += _curves(made, dataset)
    return lines


def _figure(tables: Table, dataset: str, figure: str) -> list[str]:
    """One figure of every method, both conventions side by side."""
    rows = list[list[str]]()
    for row in methods.ROWS:
        raw = tables.get((dataset, row.title, column(figure, RAW)))
        if raw is None:
            continue
        inside = tables[dataset, row.title, column(figure, IN_RANGE)]
        rows.append(
            [
                row.title,
                _reported(raw),
                _number(raw.measured),
                _range(raw.interval),
                str(len(raw.seeds)),
                _range(raw.spread),
                _number(inside.measured),
                raw.verdict,
            ]
        )
    return table(HEAD, rows)


def _prediction(tables: Table, dataset: str) -> list[str]:
    rows = list[list[str]]()
    for title in (methods.TITLES[group] for group in (methods.BASE, *methods.networks(dataset))):
        cells = [title]
        for name in ("accuracy", "auc"):
            record = tables[dataset, title, name]
            cells += [_reported(record), _number(record.measured), record.verdict]
        cells.append(_number(tables[dataset, title, "seconds of training"].measured, 1))
        rows.append(cells)
    head = ["network", "accuracy, paper", "measured", "verdict"]
    return table([*head, "AUC, paper", "measured", "verdict", "seconds of training"], rows)


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _range(pair: tuple[float, float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.3f} to {pair[1]:.3f}"


def _reported(record: Record) -> str:
    if record.reported is None:
        return "-"
    mean, deviation = record.reported
    return _number(mean) if deviation is None else f"{mean:.3f} ± {deviation:.3f}"


def brief(all_records: list[Record], datasets: tuple[str, ...]) -> list[list[str]]:
    """Rows of the shortest table: raw robust validity / proximity, and in brackets what the paper
    reports of the same method; last, how far rows inside the range of the data can be apart."""
    tables = by_place(all_records)
    out = list[list[str]]()
    for group in BRIEF:
        title = methods.TITLES[group]
        cells = [title]
        for dataset in datasets:
            pair = [
                tables[dataset, title, column(figure, RAW)]
                for figure in ("robust validity", "proximity")
            ]
            cells.append(_pair(pair))
        out.append(cells)
    return out


def _pair(pair: list[Record]) -> str:
    if any(one.measured is None for one in pair):
        return "not measured yet"
    robust, far = pair
    told = ""
    if robust.reported and far.reported:
        told = f" ({robust.reported[0]:.3f} / {far.reported[0]:.2f})"
    return f"{_number(robust.measured)} / {_number(far.measured, 2)}{told}"


# ---- curves


def _curves(made: list[Record], dataset: str) -> list[str]:
    """Those that there are, as tables."""
    lines = list[str]()
    points = _points(made, dataset)
    if points:
        head = ["method and setting", "figure", "robust validity, raw", "in range", "validity, raw"]
        rows = [
            [setting, one["figure"], *(_number(one[key]) for key in CURVE_COLUMNS), one["note"]]
            for setting, one in points.items()
        ]
        title = f"### {NAMES[dataset]}: Figures 3 to 6, first seed"
        lines += section(title, table([*head, "proximity, raw", "on"], rows))
    lines += _attacks(made, dataset)
    return lines


CURVE_COLUMNS = (
    column("robust validity", RAW),
    column("robust validity", IN_RANGE),
    column("validity", RAW),
    column("proximity", RAW),
)


def _points(made: list[Record], dataset: str) -> dict[str, dict[str, Any]]:
    """Setting -> its figures, by column."""
    out = dict[str, dict[str, Any]]()
    for one in made:
        if one.dataset == dataset and one.table in {point.figure for point in points_of(dataset)}:
            point = out.setdefault(one.row, {"figure": one.table, "note": one.note})
            point[one.column] = one.measured
    return out


def _attacked(made: list[Record], dataset: str) -> pd.DataFrame:
    """method, kind, strength and mean of each point under attack."""
    points = list[dict[str, Any]]()
    for one in made:
        if one.dataset == dataset and one.column.startswith("validity under attack"):
            kind, at = one.column.removeprefix("validity under attack, ").rsplit(", ", 1)
            points.append(
                {"method": one.row, "kind": kind, "strength": float(at), "mean": one.measured}
            )
    return pd.DataFrame(points)


def _attacks(made: list[Record], dataset: str) -> list[str]:
    points = _attacked(made, dataset)
    if points.empty:
        return []
    parts = list[Any]()
    for kind, some in points.groupby("kind", sort=False):
        wide = some.pivot(index="method", columns="strength", values="mean")
        rows = [[method, *(f"{v:.3f}" for v in line)] for method, line in wide.iterrows()]
        told: dict[str, Figures] = {}
        if dataset == "sba_loan":
            told = KNOWN["attacked"].get(str(kind).split(";")[0], {})
        if str(kind).endswith(attack.AUTHORS):
            rows += [
                [f"*authors' stored results: {name}*", *(f"{v:.3f}" for v in values["mean"])]
                for name, values in told.items()
            ]
        parts += [f"Against {kind}:", table(["", *(f"{s:g}" for s in wide.columns)], rows)]
    words = (
        "`printed` is the paper's attack, `authors` the one of their code, with Adam and a softmax "
        "over categories."
    )
    return section(f"### {NAMES[dataset]}: validity under attack, first seed", words, *parts)


# ---- pictures


def pictures(found: Found) -> Pictures:
    """Of each data set a heat-map of validities; where they are measured, the attack, the
    trade-off and the size of the data."""
    made = records(found)
    out = dict[str, Any]()
    for dataset in DATASETS:
        first = found.seeds(dataset, methods.PRINTED)[:1]
        if first:
            matrix = np.array(first[0].figures[RAW]["matrix"])
            out[f"{dataset}.svg"] = partial(validity_heatmap, matrix, first[0].figures["subsets"])
        attacked = _attacked(made, dataset)
        if not attacked.empty:
            for name, kind in (("steps", "T"), ("size", "E")):
                draw = partial(_attack, attacked, f"{kind}; {attack.PRINTED}", log=kind == "E")
                out[f"{dataset}-attack-{name}.svg"] = draw
        points = _points(made, dataset)
        for name, varied, draw in (("trade-off", "l3", _pareto), ("data-size", "share", _sizes)):
            some = _varied(points, varied)
            if not some.empty:
                out[f"{dataset}-{name}.svg"] = partial(draw, some)
    return out


def _varied(points: dict[str, dict[str, Any]], varied: str) -> pd.DataFrame:
    rows = [
        {
            "method": row.split(";")[0],
            varied: float(row.rsplit(" = ", 1)[1]),
            "cost": one[column("proximity", RAW)],
            "validity": one[column("robust validity", RAW)],
        }
        for row, one in points.items()
        if f"; {varied} = " in row
    ]
    return pd.DataFrame(rows)


def _attack(points: pd.DataFrame, kind: str, *, log: bool) -> Any:
    title = "Size of the shift (E)" if log else "Steps of the attack (T)"
    return strength(points[points["kind"] == kind].assign(sd=0.0), title=title, log=log)


def _pareto(points: pd.DataFrame) -> Any:
    return pareto(points.rename(columns={"l3": "setting"}))


def _sizes(points: pd.DataFrame) -> Any:
    return data_size(points.rename(columns={"validity": "mean"}).assign(sd=0.0))
