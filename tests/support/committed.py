"""The results of the papers as they are committed."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "experiments/results"


def committed_results(paper: str) -> dict[str, Any]:
    """dataset -> its file"""
    return {
        path.stem: json.loads(path.read_text()) for path in sorted((RESULTS / paper).glob("*.json"))
    }
