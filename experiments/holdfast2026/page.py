"""The page: one table for each kind of model."""

from experiments.experiment import Pictures, Results
from experiments.holdfast2026.setup import KINDS
from experiments.holdfast2026.summary import METHODS, People, ratio
from experiments.tables import table

NAMES = {
    "smallest": "smallest answer", "sns": "SNS with 10 retrained models", "margin": "smallest, calibrated margin",
    "survival": "survival search",
}  # fmt: skip
HEAD = (
    "dataset", "method", "people", "cost", "ours / theirs", "/ oracle", "survival", "certified, `retrain`",
    "certified, all", "ms per person",
)  # fmt: skip


def page(results: Results) -> list[str]:
    """One table for each kind of model."""
    lines = list[str]()
    for kind in KINDS:
        rows = [row for result in results for row in _rows(result, kind)]
        lines += [f"## {kind[:1].upper()}{kind[1:]}", "", *table(HEAD, rows), ""]
    return lines


def _rows(result: dict[str, object], kind: str) -> list[list[str]]:
    ours = People.of(result, kind, "survival")
    out = list[list[str]]()
    for method in METHODS:
        people = People.of(result, kind, method)
        if people is None or ours is None:
            continue
        against = "" if method == "survival" else _interval(*ratio(ours.cost, people.cost))
        out.append([
            str(result["title"]), NAMES[method], str(len(people.cost)), f"{people.cost[people.answered].mean():.3f}",
            against, _interval(*ratio(people.cost, people.oracle)), f"{people.survival[people.answered].mean():.3f}",
            _interval(*people.share(people.certified)), _interval(*people.share(people.certified_by_all)),
            f"{1000 * people.seconds:.1f}",
        ])  # fmt: skip
    return out


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def pictures(results: Results) -> Pictures:
    """None yet."""
    return {}
