"""What the paper and the authors' stored results report, as [mean, standard deviation]: see
`reported.toml`."""

import tomllib
from pathlib import Path
from typing import Any

FIGURES = ("proximity", "validity", "robust validity")
KNOWN: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)

# dataset -> method -> figure -> [mean, standard deviation]; what the paper leaves out is absent
REPORTED: dict[str, dict[str, dict[str, list[float]]]] = {
    dataset: {m: {f: v for f, v in zip(FIGURES, row, strict=True) if v} for m, row in rows.items()}
    for dataset, rows in KNOWN["tables"].items()
}
T_STEPS = (1, 2, 3, 5, 7, 10, 13, 15, 20)
E_STEPS = (1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.5)


def reported(dataset: str) -> dict[str, Any]:
    """All of it about one dataset."""
    more = {
        name: KNOWN[name][dataset]
        for name in ("prediction", "training", "per answer")
        if dataset in KNOWN[name]
    }
    out: dict[str, Any] = {"tables": REPORTED[dataset]} | more
    if dataset == "sba_loan":
        out["attacked"] = {"T": list(T_STEPS), "E": list(E_STEPS), "validity": KNOWN["attacked"]}
    return out
