"""Run a paper's experiments: cells on disk, one JSON file per dataset, then pages and pictures of all of them."""

import contextlib
import importlib
import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.cells import Cells, write_whole
from holdfast.errors import MissingExtraError, SettingError, did_you_mean
from holdfast.render.charts.theme import save as save_chart

PAPERS = {
    name: f"experiments.{name}.experiment"
    for name in ("black2022", "guo2023", "krishna2024", "altmeyer2025", "hoeltgen2021")
}
QUICK_ROWS = 200
FULL_SEED = 0  # and all rows, and as many models as the paper has


def paper(name: str) -> Any:
    """The module of a paper."""
    if name not in PAPERS:
        raise SettingError(f"unknown paper {name!r}; {did_you_mean(name, PAPERS)}")
    return importlib.import_module(PAPERS[name])


def quick_models(name: str, models: int | None) -> int:
    """As many as a quick run has, unless fewer are asked for."""
    most: int = paper(name).QUICK_MODELS
    return most if models is None else min(models, most)


def run_paper(
    name: str,
    datasets: Sequence[str],
    *,
    out: Path,
    work: Path,
    models: int | None = None,
    rows: int | None = None,
    seed: int = FULL_SEED,
    said: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Measure datasets one after the other; what is in `work` already is not measured again.

    Args:
        datasets: names; none means all of the paper's own.
        out: directory of the results, `<out>/<paper>/<dataset>.json` and a page over all of them.
        work: directory of the cells; delete it to start anew.
        models: retrained models per family, repeats with other seeds, or test sets; None takes as many as the paper.
        rows: test rows; None takes all.

    Returns:
        One result per dataset, as in the files.
    """
    source = paper(name)
    for dataset in datasets:
        if dataset not in source.SETTINGS:
            raise SettingError(f"{name} has no dataset {dataset!r}; {did_you_mean(dataset, source.SETTINGS)}")
    count: int = source.MODELS if models is None else models
    if not 1 <= count <= source.POOL:
        raise SettingError(f"models must be 1 to {source.POOL} for {name}, got {count}")
    results = list[dict[str, Any]]()
    for dataset in datasets or list(getattr(source, "FULL", source.SETTINGS)):
        start = time.perf_counter()
        cells = Cells(work / name, {}, said)
        result = source.run(dataset, cells, models=count, rows=rows, seed=seed)
        result["machine"] = f"Python {platform.python_version()}, torch {torch.__version__}, one thread"
        result["seconds"]["this call"] = round(time.perf_counter() - start, 1)
        write_whole(out / name / f"{dataset}.json", (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
        results.append(result)
    write_page(name, out)
    return results


def write_page(name: str, out: Path) -> Path:
    """The markdown page over all results of a paper that there are."""
    source = paper(name)
    found = [out / name / f"{dataset}.json" for dataset in source.SETTINGS]
    results = [json.loads(path.read_text()) for path in found if path.is_file()]
    page = out / name / "README.md"
    write_whole(page, source.page(results).encode())
    with contextlib.suppress(MissingExtraError):  # pictures need the plot extra; figures do not
        for dataset, chart in source.charts(results).items():
            if isinstance(chart, bytes):
                write_whole(page.with_name(f"{dataset}.png"), chart)
            else:
                save_chart(chart, page.with_name(f"{dataset}.svg"))
    return page
