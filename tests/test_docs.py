"""The tables of the documents are what the results say, counted again from the result files."""

import json
import re
from pathlib import Path

import pytest

from experiments.altmeyer2025 import page as altmeyer2025
from experiments.black2022 import page as black2022
from experiments.guo2023 import page as guo2023
from experiments.krishna2024 import claims as krishna2024_claims
from experiments.records import FILE, read_records
from support.committed import RESULTS, committed_results

ROOT = Path(__file__).parent.parent
REPRODUCTIONS = (ROOT / "docs/reproductions/index.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")


def table_row(cells: list[object]) -> str:
    return "| " + " | ".join(str(c) for c in cells) + " |"


def written(measured: dict[str, float], **styles: str) -> list[str]:
    """These figures, each in its own style."""
    return [format(measured[name], style) for name, style in styles.items()]


def test_the_peer_table_is_what_was_measured() -> None:
    results = json.loads((ROOT / "benchmarks/results/peers/heloc.json").read_text())
    methods = {m["method"]: m for m in results["methods"]}
    for name, label in results["readme"].items():
        m = methods[name]
        figures = written(m, validity=".2f", l1=".3f", l2=".3f", in_range=".2f", changed=".1f")
        cells = [label, m["rows"], *figures, *written(m, ms_per_row=".3g")]
        assert table_row(cells) in BENCHMARKS


def test_the_tables_of_trees_are_what_was_measured() -> None:
    results = json.loads((ROOT / "benchmarks/results/trees.json").read_text())
    for name, label in (("german_credit", "German Credit"), ("adult", "Adult")):
        for method, m in results["search"][name]["methods"].items():
            figures = written(m, validity=".2f", changed=".2f", l1=".3f")
            milliseconds = f"{1000 * m['seconds per row']:.3g}"
            assert table_row([label, method, m["rows"], *figures, milliseconds]) in BENCHMARKS
        for figure, value in results["search"][name]["figures"].items():
            assert value <= results["limits"][figure], figure
    for model, m in results["models"].items():
        assert table_row([model, f"{m['copy / library']:.2f}"]) in BENCHMARKS
        assert m["copy / library"] <= results["limits"]["copy / library"]


@pytest.mark.parametrize(
    "file", ["engine", "retraining", "shift", "hardening", "teaching", "images"]
)
def test_the_speed_tables_are_what_was_measured(file: str) -> None:
    results = json.loads((ROOT / f"benchmarks/results/{file}.json").read_text())
    for name, limit in results["limits"].items():
        assert table_row([name, f"{results['figures'][name]:.3g}", f"{limit:g}"]) in BENCHMARKS


def test_the_table_of_what_holds_is_what_was_measured() -> None:
    results = list(committed_results("black2022").values())
    for name, row in black2022.means(results).items():
        figures = written(row, LOO=".4f", RS=".4f", rise=".3f", times=".2f")
        assert table_row([name, *figures]) in REPRODUCTIONS


def test_the_table_of_what_shifts_break_is_what_was_measured() -> None:
    records = read_records(RESULTS / "guo2023" / FILE)
    datasets = ("sba_loan", "german_credit", "student")
    by_place = {(one.dataset, one.row, one.column): one for one in records}
    for title, *cells in guo2023.brief(records, datasets):
        assert table_row([title, *cells]) in REPRODUCTIONS
        for dataset, cell in zip(datasets, cells, strict=True):
            robust = by_place[dataset, title, "robust validity, raw"]
            far = by_place[dataset, title, "proximity, raw"]
            if robust.measured is None or far.measured is None:
                assert cell == "not measured yet"
                continue
            shown = f"{robust.measured:.3f} / {far.measured:.2f}"
            if robust.reported and far.reported:
                shown += f" ({robust.reported[0]:.3f} / {far.reported[0]:.2f})"
            assert cell == shown


def test_the_table_of_claims_is_what_was_measured() -> None:
    results = list(committed_results("krishna2024").values())
    assert len(results) == 4
    for claim, share in krishna2024_claims.tally(results).items():
        assert table_row([claim, share]) in REPRODUCTIONS


def test_the_table_of_taught_networks_is_what_was_measured() -> None:
    results = list(committed_results("altmeyer2025").values())
    assert len(results) == 9
    for r in results:
        row = altmeyer2025.brief(r)
        assert table_row(row) in REPRODUCTIONS
        for cell, column in zip(
            row[1:4], ("implausibility", "MMD", "cost, protected"), strict=True
        ):
            found = r["measured"][column]  # never one percentage without the other
            star = "*" if found["significant"] else ""
            assert cell.startswith(f"{found['of means']:.1f}{star} / {found['reduction']:.1f} (")


def test_no_document_names_this_machine() -> None:
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("*.yml"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("docs/generator/*.py"),
        *ROOT.glob(".github/**/*.*"),
        *ROOT.glob("benchmarks/**/*.*"),
        *ROOT.glob("src/**/*.py"),
    ]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/work/|/root/|/tmp/|/home/", text), path
