"""The tables of the paper as records, of the cells that there are."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from experiments.cell import Made
from experiments.guo2023 import attack, methods
from experiments.guo2023.cells import PAPER, SEEDS, curves, search_curves
from experiments.guo2023.measure import CONVENTIONS, RAW
from experiments.guo2023.reported import FIGURES, KNOWN, REPORTED
from experiments.guo2023.task import DATASETS, REAL, SIMULATED
from experiments.paper import Found
from experiments.records import Record

RAW_NOTE = "numbers as they were proposed, as in the paper"
IN_RANGE_NOTE = "numbers inside the range of the data, which the paper does not report"
TABLES = {
    "Table 3": ("cf-model", "robust-cf-model", "vae-cf", "robust-vae-cf"),
    "Table 8": ("random", "vanilla-random"),
}


def table_of(dataset: str, group: str) -> str:
    """Which table of the paper a row is from, or stands nearest to."""
    if dataset in SIMULATED:
        return "Table 9"
    return next((table for table, groups in TABLES.items() if group in groups), "Table 2")


def records(found: Found) -> list[Record]:
    """All of them; what the tables miss is there as well, not measured yet."""
    out = list[Record]()
    for dataset in DATASETS:
        for row in methods.ROWS:
            if _is_asked(dataset, row.group):
                out += _of_row(found, dataset, row)
        out += _of_predictions(found, dataset)
        if dataset in REAL:
            out += _of_curves(found, dataset)
            out += _of_attacks(found, dataset)
    return out


def column(figure: str, convention: str) -> str:
    return f"{figure}, {convention}"


def _is_asked(dataset: str, group: str) -> bool:
    """Simulated shifts are about networks alone."""
    return bool(SEEDS[dataset][2]) or group in methods.networks(dataset)


def _of_row(found: Found, dataset: str, row: methods.Row) -> list[Record]:
    made = found.seeds(dataset, row.group)
    told = REPORTED[dataset].get(row.reported, {})
    out = list[Record]()
    for figure in FIGURES:
        for convention in CONVENTIONS:
            by_seed = {one.cell.seed: one.figures[convention][figure] for one in made}
            raw = convention == RAW
            record = Record.of(
                _place(
                    table_of(dataset, row.group), dataset, row.title, column(figure, convention)
                ),
                by_seed,
                told.get(figure) if raw else None,
                n=_asked(made),
                note=RAW_NOTE if raw else IN_RANGE_NOTE,
                cells=_names(made),
            )
            out.append(record)
    return out


def _of_predictions(found: Found, dataset: str) -> list[Record]:
    """Tables 6, 7 and 10."""
    told = KNOWN["prediction"].get(dataset, {})
    names = {methods.BASE: "base", methods.PRINTED: "RoCourseNet"}
    out = list[Record]()
    for group in (methods.BASE, *methods.networks(dataset)):
        made = found.seeds(dataset, group)
        place = partial(_place, dataset=dataset, row=methods.TITLES[group])
        for table, figure in (("Table 6", "accuracy"), ("Table 7", "auc")):
            reported = told.get(names.get(group, ""), {}).get(figure)
            by_seed = {one.cell.seed: one.figures[figure] for one in made}
            where = place(table, column=figure)
            out.append(Record.of(where, by_seed, reported, cells=_names(made)))
        seconds = {one.cell.seed: one.figures["seconds of training"] for one in made}
        out.append(
            Record.of(
                place("Table 10", column="seconds of training"),
                seconds,
                note="of all subsets, on one thread; the paper's are from another machine",
                cells=_names(made),
            )
        )
    return out


@dataclass(frozen=True)
class Point:
    """A point of Figures 3 to 6: its cells, its row, and what it was made on."""

    group: str
    figure: str
    row: str
    note: str


def points_of(dataset: str) -> list[Point]:
    """All points of a data set."""
    out = list[Point]()
    for curve in curves(dataset):
        row = f"{methods.TITLES[curve.method]}; {curve.varied} = {curve.value}"
        note = f"{curve.share:.0%} of the training rows"
        out.append(Point(curve.group, curve.figure, row, note))
    for search in search_curves():
        varied, value, method = search.group.split("-", 2)
        row = f"{methods.TITLES[method]}; {varied} = {value}"
        out.append(Point(search.group, "Figure 3", row, f"{search.rows} rows of each subset"))
    return out


def _of_curves(found: Found, dataset: str) -> list[Record]:
    out = list[Record]()
    for point in points_of(dataset):
        made = found.seeds(dataset, point.group)
        for figure in FIGURES:
            for convention in CONVENTIONS if made else ():
                by_seed = {one.cell.seed: one.figures[convention][figure] for one in made}
                where = _place(point.figure, dataset, point.row, column(figure, convention))
                out.append(
                    Record.of(where, by_seed, n=_asked(made), note=point.note, cells=_names(made))
                )
    return out


def _of_attacks(found: Found, dataset: str) -> list[Record]:
    """The authors' stored results are of their own code's attack, on the loans."""
    out = list[Record]()
    for group in attack.ATTACKED:
        made = found.seeds(dataset, f"attack-{group}")
        for kind in made[0].figures if made else ():
            for strength in made[0].figures[kind]:
                by_seed = {one.cell.seed: one.figures[kind][strength][0] for one in made}
                where = _place(
                    "Figure 12a" if "l2" in kind else "Figure 4a, d",
                    dataset,
                    methods.TITLES[group],
                    f"validity under attack, {kind}, {strength}",
                )
                out.append(Record.of(where, by_seed, cells=_names(made)))
    return out


def _place(table: str, dataset: str, row: str, column: str) -> dict[str, str]:
    return {"paper": PAPER, "table": table, "dataset": dataset, "row": row, "column": column}


def _names(made: Iterable[Made]) -> list[str]:
    return [one.cell.name for one in made]


def _asked(made: list[Made]) -> int | None:
    return made[0].figures["asked"] if made else None
