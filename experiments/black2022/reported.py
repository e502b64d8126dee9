"""What the paper reports: Tables 1 to 4.

Invalidation: mean and standard deviation over 100 models; cost: over answers. Cells the paper leaves empty are
absent. The printed l1 of Min l1 on ctg and warfarin is below its l2, which cannot be: those cells are unreliable.
"""

Row = dict[str, float | list[float]]


def _row(*pairs: tuple[float, float], success: float | None = None) -> Row:
    """(mean, standard deviation) of the invalidation by leaving one out and by other weights, of l2, and of l1."""
    out: Row = {name: [*pair] for name, pair in zip(("IV LOO", "IV RS", "l2", "l1"), pairs, strict=False)}
    return out if success is None else out | {"success": success}


# dataset -> method -> figure -> value, or [mean, standard deviation]
REPORTED: dict[str, dict[str, Row]] = {
    "german_credit": {
        "Min l1": _row((0.41, 0.04), (0.56, 0.05), (1.33, 1.07), (2.09, 2.0), success=0.55),
        "Min l1 + SNS": _row((0.0, 0.0), (0.07, 0.02), (3.4, 0.82), (13.81, 2.96)),
        "Min l2": _row((0.36, 0.05), (0.56, 0.06), (4.49, 1.9), (24.7, 13.14), success=0.84),
        "Min l2 + SNS": _row((0.0, 0.0), (0.06, 0.04), (6.23, 1.65), (34.38, 11.54)),
        "Min eps PGD": _row((0.28, 0.03), (0.61, 0.04), (1.02, 0.57), (6.31, 3.56), success=0.9),
        "Min eps PGD + SNS": _row((0.0, 0.0), (0.12, 0.03), (3.03, 0.38), (14.21, 2.31)),
        "Looveren": _row((0.25, 0.03), (0.4, 0.03), (5.37, 2.53), (15.93, 8.93), success=1),
        "Pawelczyk": _row((0.2, 0.13), (0.35, 0.16), (7.15, 2.12), success=0.38),
    },
    "seizure": {
        "Min l2": _row((0.64, 0.06), (0.77, 0.12), (8.23, 2.27), (77.89, 28.38), success=0.71),
        "Min l2 + SNS": _row((0.02, 0.02), (0.13, 0.08), (9.6, 2.31), (96.08, 27.8)),
        "Min eps PGD": _row((0.94, 0.01), (0.94, 0.12), (1.36, 0.38), (14.55, 4.15), success=0.86),
        "Min eps PGD + SNS": _row((0.04, 0.02), (0.16, 0.08), (3.6, 0.59), (38.55, 6.36)),
        "Looveren": _row((0.48, 0.04), (0.54, 0.05), (8.4, 6.96), (76.99, 69.93), success=1),
        "Pawelczyk": _row((0.16, 0.14), (0.11, 0.17), (13.66, 7.46), success=1),
        "Min l1": _row(success=0.11),
    },
    "ctg": {
        "Min l1": _row((0.07, 0.09), (0.29, 0.09), (0.17, 0.12), (0.16, 0.19), success=1),
        "Min l1 + SNS": _row((0.0, 0.0), (0.01, 0.0), (0.25, 0.08), (0.58, 0.14)),
        "Min l2": _row((0.48, 0.17), (0.49, 0.15), (0.06, 0.04), (0.18, 0.12), success=1),
        "Min l2 + SNS": _row((0.0, 0.0), (0.0, 0.0), (0.21, 0.04), (0.57, 0.1)),
        "Min eps PGD": _row((0.04, 0.03), (0.09, 0.04), (0.08, 0.03), (0.3, 0.12), success=0.51),
        "Min eps PGD + SNS": _row((0.0, 0.0), (0.0, 0.0), (0.22, 0.04), (0.63, 0.14)),
        "Looveren": _row((0.11, 0.08), (0.18, 0.08), (0.11, 0.06), (0.16, 0.12), success=1),
        "Pawelczyk": _row((0.0, 0.0), (0.06, 0.04), (1.07, 0.2), success=0.87),
    },
    "warfarin": {
        "Min l1": _row((0.44, 0.02), (0.35, 0.08), (0.5, 0.33), (0.48, 0.59), success=1),
        "Min l1 + SNS": _row((0.0, 0.0), (0.0, 0.0), (0.8, 0.29), (1.61, 0.52)),
        "Min l2": _row((0.35, 0.02), (0.3, 0.05), (0.54, 0.57), (1.17, 0.91), success=1),
        "Min l2 + SNS": _row((0.0, 0.0), (0.0, 0.0), (0.9, 0.54), (2.17, 0.95)),
        "Min eps PGD": _row((0.1, 0.01), (0.12, 0.03), (0.31, 0.12), (1.07, 0.42), success=0.85),
        "Min eps PGD + SNS": _row((0.01, 0.0), (0.02, 0.01), (0.5, 0.11), (1.41, 0.36)),
        "Looveren": _row((0.26, 0.02), (0.25, 0.02), (1.03, 0.46), (1.75, 0.99), success=1),
        "Pawelczyk": _row((0.02, 0.0), (0.01, 0.0), (2.62, 0.79), success=0.72),
    },
    "heloc": {
        "Min l1": _row((0.3, 0.03), (0.43, 0.07), (0.24, 0.18), (0.35, 0.3), success=1),
        "Min l1 + SNS": _row((0.0, 0.0), (0.0, 0.0), (1.71, 0.12), (7.11, 0.72)),
        "Min l2": _row((0.55, 0.05), (0.61, 0.07), (0.11, 0.08), (0.43, 0.31), success=1),
        "Min l2 + SNS": _row((0.0, 0.0), (0.0, 0.0), (1.71, 0.11), (7.18, 0.73)),
        "Min eps PGD": _row((0.04, 0.01), (0.11, 0.02), (0.32, 0.12), (1.45, 0.54), success=1),
        "Min eps PGD + SNS": _row((0.0, 0.0), (0.0, 0.0), (1.79, 0.15), (7.64, 0.88)),
        "Looveren": _row((0.25, 0.03), (0.34, 0.05), (0.45, 0.45), (0.97, 1.05), success=1),
        "Pawelczyk": _row((0.05, 0.06), (0.15, 0.21), (1.35, 0.93), success=0.76),
    },
    "taiwan_credit": {
        "Min l1": _row((0.3, 0.03), (0.78, 0.06), (1.56, 0.94), (2.4, 2.84), success=1),
        "Min l1 + SNS": _row((0.0, 0.0), (0.04, 0.02), (3.5, 0.91), (11.04, 3.17)),
        "Min l2": _row((0.27, 0.05), (0.72, 0.07), (2.65, 1.08), (9.76, 3.93), success=1),
        "Min l2 + SNS": _row((0.0, 0.0), (0.04, 0.04), (4.68, 1.03), (16.63, 3.76)),
        "Min eps PGD": _row((0.04, 0.0), (0.24, 0.07), (0.75, 0.27), (3.19, 1.09), success=1),
        "Min eps PGD + SNS": _row((0.0, 0.0), (0.11, 0.05), (2.78, 0.49), (10.19, 2.54)),
        "Looveren": _row((0.29, 0.06), (0.53, 0.06), (2.82, 1.89), (6.11, 5.12), success=1),
        "Pawelczyk": _row((0.02, 0.01), (0.2, 0.09), (4.24, 2.23), success=0.14),
    },
}
R2 = {"german_credit": 0.05, "seizure": 0.06, "ctg": 0.02, "warfarin": 0.01, "heloc": 0.17, "taiwan_credit": 0.05}
