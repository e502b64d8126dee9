"""The results of the papers as they are committed."""

from pathlib import Path
from typing import Any

from experiments.whole import committed

RESULTS = Path(__file__).parents[2] / "experiments/results"


def committed_results(paper: str) -> dict[str, Any]:
    """dataset -> its figures"""
    return {result["dataset"]: result for result in committed(paper)}
