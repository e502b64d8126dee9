"""What is copied from the paper is complete."""

from experiments.black2022.reported import REPORTED
from experiments.black2022.setup import SETTINGS


def test_what_the_paper_reports_is_complete() -> None:
    """Paper: black2022 Table 1, Table 2, Table 3, Table 4."""
    for name in SETTINGS:
        reported = REPORTED[name]
        for label in (
            "Min l2",
            "Min l2 + SNS",
            "Min eps PGD",
            "Min eps PGD + SNS",
            "Looveren",
            "Pawelczyk",
        ):
            assert {"IV LOO", "IV RS", "l2"} <= set(reported[label]), (name, label)
        for figures in reported.values():
            shares = [v for k, v in figures.items() if k.startswith("IV")]
            assert all(0 <= mean <= 1 and 0 <= sd <= 1 for mean, sd in shares)
    assert REPORTED["heloc"]["Min l2 + SNS"]["l2"] == [1.71, 0.11]
    assert "Min l1" not in REPORTED["seizure"] or "l2" not in REPORTED["seizure"]["Min l1"]
