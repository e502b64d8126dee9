"""Tables of what was measured, from the result files of experiments and benchmarks."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks/results"
ALLOWED = 0.05  # of certificates may be false at a confidence of 95 %

MODELS = {
    "lr": "logistic regression",
    "xgb": "XGBoost",
    "net": "network",
    "forest": "random forest",
}
POPULATIONS = {
    "gmsc": "Give Me Some Credit",
    "adult": "Adult",
    "taiwan": "Taiwan",
    "lending": "Lending Club",
}


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _all(paper: str) -> list[Any]:
    from experiments.whole import committed

    return sorted(committed(paper), key=lambda result: result["dataset"])


def _of(paper: str, datasets: Iterable[str]) -> list[Any]:
    by_dataset = {result["dataset"]: result for result in _all(paper)}
    return [by_dataset[name] for name in datasets]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(map(str, cells)) + " |" for cells in lines
    ).replace("| --- |", "|---|", 1)


def black2022() -> str:
    """Over datasets and starts: invalidation, and what the move costs."""
    from experiments.black2022.page import means

    head = [
        "",
        "one row left out",
        "other initial weights",
        "rise in l2 cost",
        "times the start's cost",
    ]
    rows = [
        [
            name,
            f"{r['LOO']:.4f}",
            f"{r['RS']:.4f}",
            f"{r['rise']:.3f}",
            f"{r['times']:.2f}",
        ]
        for name, r in means(_all("black2022")).items()
    ]
    return _table(head, rows)


def guo2023() -> str:
    """Raw robust validity and proximity on the three real datasets."""
    from experiments.guo2023.page import brief
    from experiments.pages import RESULTS
    from experiments.records import FILE, read_records

    head = [
        "robust validity / proximity (reported)",
        "Loans, 16 years",
        "German Credit, 2 tables",
        "Student, 2 schools",
    ]
    records = read_records(RESULTS / "guo2023" / FILE)
    return _table(head, brief(records, ("sba_loan", "german_credit", "student")))


def krishna2024() -> str:
    """In how many cases each claim of the paper holds."""
    from experiments.krishna2024.claims import tally

    return _table(["claim", "holds in"], tally(_all("krishna2024")).items())


def altmeyer2025() -> str:
    """Percent less than the plain network, by dataset."""
    from experiments.altmeyer2025.page import brief

    head = [
        "data",
        "distance to data",
        "MMD",
        "cost, a feature protected",
        "accuracy, plain",
        "trained so",
    ]
    order = [
        "linearly_separable",
        "circles",
        "moons",
        "overlapping",
        "adult",
        "california_housing",
        "taiwan_credit",
    ]
    order += ["give_me_some_credit", "mnist"]
    return _table(head, (brief(result) for result in _of("altmeyer2025", order)))


def hoeltgen2021() -> str:
    """Pixels, distance, realism and failures on MNIST."""
    from experiments.hoeltgen2021.page import brief

    head = ["networks", "method", "L0", "L1", "AnoGAN score", "failures"]
    return _table(head, (row for r in _all("hoeltgen2021") for row in brief(r)))


def next_training() -> str:
    """Of what is certified, how much is false for models of other rows; beside it by bootstraps as
    they are."""
    head = [
        "tables of",
        "hold",
        "tables",
        "certified",
        "**false**",
        "hold on",
        "cost",
        "false by `retrain`",
    ]
    rows = list[list[object]]()
    for told, lines in _populations():
        if "stretch" in lines:
            line = lines["stretch"]
            price = f"{line['cost / bootstraps']:.2f}x"
            rows.append(
                [
                    *told,
                    *_judged(line),
                    price,
                    _false(lines["retrain"]) if "retrain" in lines else "",
                ]
            )
    return f"{_table(head, rows)}\n\n{_whether_kept()}"


def _whether_kept() -> str:
    """Of all certificates together how many are false at each level, and on which lines more than
    the level of confidence allows."""
    judged = [
        (told, lines["stretch"]) for told, lines in _populations() if "stretch" in lines
    ]
    parts = list[str]()
    for hold in sorted({told[1] for told, _ in judged}):
        lines = [line for told, line in judged if told[1] == hold]
        certified = sum(round(line["certified"] * line["people"]) for line in lines)
        false = sum(
            round(line["false"] * line["certified"] * line["people"]) for line in lines
        )
        parts.append(
            f"{false} of {certified:,} ({false / max(certified, 1):.1%}) at {hold}"
        )
    beyond = [
        f"{told[0].removesuffix(', 1,000 rows')} at {told[1]} ({line['false']:.1%})"
        for told, line in judged
        if line["false"] > ALLOWED
    ]
    kept = f"Of all certificates together {' and '.join(parts)} are false."
    if not beyond:
        return f"{kept} No line has more than the {ALLOWED:.0%} that a confidence of 95% allows."
    more = f"More than the {ALLOWED:.0%} that a confidence of 95% allows"
    return f"{kept} {more}: {'; '.join(beyond)}."


def next_training_of_fewer_rows() -> str:
    """The same of judges that are models of fewer rows."""
    head = ["tables of", "hold", "tables", "certified", "**false**", "hold on"]
    rows = list[list[object]]()
    for told, lines in _populations():
        if "fresh" in lines:
            rows.append([*told, *_judged(lines["fresh"])])
    return _table(head, rows) if rows else "Not made yet."


def _populations() -> list[tuple[list[str], dict[str, dict[str, Any]]]]:
    """What is asked about, in words, and the figures by each family of judges."""
    from benchmarks.next_training import finished, table

    out = dict[tuple[str, ...], dict[str, dict[str, Any]]]()
    for line in table(finished()).to_dict(orient="records"):
        rows = f"{line['rows']:,} rows{' in groups of 3' if line['grouped'] else ''}"
        told = (
            f"{POPULATIONS[line['population']]}, {MODELS[line['model']]}, {rows}",
            f"{line['hold']:g}",
        )
        out.setdefault(told, {})[line["judges"]] = line
    return [(list(told), lines) for told, lines in out.items()]


def _judged(line: dict[str, Any]) -> list[object]:
    """How many tables, what share is certified, what share of it is false, and how often it
    holds."""
    return [
        line["tables"],
        f"{line['certified']:.2f}",
        _false(line, "**"),
        f"{line['holds on']:.3f}",
    ]


def _false(line: dict[str, Any], mark: str = "") -> str:
    return f"{mark}{line['false']:.3f}{mark} {_interval(line)}"


def _interval(line: dict[str, Any]) -> str:
    return f"({line['low']:.2f} to {line['high']:.2f})"


def repeated_banks() -> str:
    """Of what is certified, how much is false for models of the judges' own family."""
    from benchmarks.repeated_banks import table

    head = [
        "model",
        "hold",
        "repetitions",
        "certified",
        "**false**",
        "most in one repetition",
    ]
    lines = table().to_dict(orient="records")
    rows = [
        [
            MODELS[line["model"]],
            f"{line['hold']:g}",
            line["repetitions"],
            f"{line['certified']:,} of {line['of']:,}",
            f"**{line['false']:.3f}**",
            f"{line['most in one']:.3f}",
        ]
        for line in lines
    ]
    return _table(head, rows)


def peers() -> str:
    """Every library on the same network and rows."""
    found = _json(BENCHMARKS / "peers/heloc.json")
    by_name = {m["method"]: m for m in found["methods"]}
    head = [
        "method",
        "rows",
        "valid",
        "mean L1",
        "mean L2",
        "in range",
        "features changed",
        "ms per row",
    ]
    rows = list[list[object]]()
    for name, label in found["readme"].items():
        m = by_name[name]
        figures = [
            f"{m['validity']:.2f}",
            f"{m['l1']:.3f}",
            f"{m['l2']:.3f}",
            f"{m['in_range']:.2f}",
        ]
        rows.append(
            [
                label,
                m["rows"],
                *figures,
                f"{m['changed']:.1f}",
                f"{m['ms_per_row']:.3g}",
            ]
        )
    return _table(head, rows)


def tree_search() -> str:
    """Every library on the same boosted trees and rows."""
    found = _json(BENCHMARKS / "trees.json")["search"]
    rows = list[list[object]]()
    for name, label in (("german_credit", "German Credit"), ("adult", "Adult")):
        for method, m in found[name]["methods"].items():
            figures = [f"{m['validity']:.2f}", f"{m['changed']:.2f}", f"{m['l1']:.3f}"]
            rows.append(
                [
                    label,
                    method,
                    m["rows"],
                    *figures,
                    f"{1000 * m['seconds per row']:.3g}",
                ]
            )
    return _table(
        [
            "data",
            "method",
            "rows",
            "valid",
            "features changed",
            "mean L1",
            "ms per row",
        ],
        rows,
    )


def compiled_trees() -> str:
    """Time of a compiled tree model over that of the library's own prediction."""
    found = _json(BENCHMARKS / "trees.json")["models"]
    return _table(
        ["model", "compiled / library"],
        ([name, f"{m['copy / library']:.2f}"] for name, m in found.items()),
    )


def speed(file: str) -> str:
    """The figures of a benchmark that have a limit."""
    found = _json(BENCHMARKS / f"{file}.json")
    rows = (
        [name, f"{found['figures'][name]:.3g}", f"{limit:g}"]
        for name, limit in found["limits"].items()
    )
    return _table(["what", "measured", "at most"], rows)
