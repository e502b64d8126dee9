"""What the paper and the authors' stored results report, as [mean, standard deviation]."""

from typing import Any

P, V, R = "proximity", "validity", "robust validity"


def _row(p: list[float], v: list[float], r: list[float]) -> dict[str, list[float]]:
    return {P: p, V: v, R: r}


# Tables 2, 3 and 8.
REPORTED: dict[str, dict[str, dict[str, list[float]]]] = {
    "sba_loan": {
        "VanillaCF": _row([7.390, 1.860], [0.942, 0.026], [0.885, 0.121]),
        "CounterNet": _row([6.746, 0.723], [0.964, 0.085], [0.639, 0.222]),
        "ROAR-LIME": _row([7.648, 1.951], [0.934, 0.024], [0.918, 0.066]),
        "RBR": _row([11.71, 1.633], [0.824, 0.130], [0.821, 0.132]),
        "RoCourseNet": _row([6.611, 0.418], [0.996, 0.002], [0.969, 0.106]),
        "CF Model": {V: [0.826, 0.1825], R: [0.607, 0.167]},
        "Robust CF Model": {V: [0.949, 0.022], R: [0.906, 0.119]},
        "VAE-CF": _row([8.531, 1.241], [0.745, 0.272], [0.692, 0.251]),
        "Robust VAE-CF": _row([9.473, 0.962], [0.818, 0.186], [0.807, 0.189]),
        "VanillaCF-Random": _row([9.446, 1.042], [0.634, 0.270], [0.510, 0.251]),
        "RoCourseNet-Random": _row([10.405, 1.857], [0.856, 0.127], [0.856, 0.127]),
    },
    "german_credit": {
        "VanillaCF": _row([4.635, 0.197], [0.940, 0.011], [0.772, 0.008]),
        "CounterNet": _row([5.719, 0.130], [0.960, 0.028], [0.706, 0.074]),
        "ROAR-LIME": _row([4.862, 0.117], [0.910, 0.0255], [0.792, 0.052]),
        "RBR": _row([6.005, 2.099], [0.524, 0.148], [0.586, 0.046]),
        "RoCourseNet": _row([6.903, 0.250], [0.978, 0.002], [0.964, 0.008]),
    },
    "student": {
        "VanillaCF": _row([15.236, 0.383], [0.915, 0.056], [0.673, 0.006]),
        "CounterNet": _row([18.619, 0.131], [0.967, 0.033], [0.859, 0.071]),
        "ROAR-LIME": _row([11.931, 1.396], [0.967, 0.026], [0.820, 0.075]),
        "RBR": _row([26.255, 3.089], [0.660, 0.014], [0.611, 0.073]),
        "RoCourseNet": _row([16.508, 0.281], [1.0, 0.0], [1.0, 0.0]),
    },
    # Table 9
    "covariate_shift": {"RoCourseNet": _row([0.389, 0.051], [1.0, 0.0], [1.0, 0.0])},
    "label_shift": {"RoCourseNet": _row([0.425, 0.012], [1.0, 0.0], [1.0, 0.0])},
}

# Tables 6 and 7.
PREDICTION: dict[str, dict[str, dict[str, list[float]]]] = {
    "sba_loan": {
        "base": {"accuracy": [0.886, 0.036], "auc": [0.897, 0.026]},
        "RoCourseNet": {"accuracy": [0.885, 0.035], "auc": [0.900, 0.027]},
    },
    "german_credit": {
        "base": {"accuracy": [0.714, 0.003], "auc": [0.662, 0.018]},
        "RoCourseNet": {"accuracy": [0.742, 0.014], "auc": [0.729, 0.010]},
    },
    "student": {
        "base": {"accuracy": [0.914, 0.028], "auc": [0.913, 0.012]},
        "RoCourseNet": {"accuracy": [0.906, 0.066], "auc": [0.947, 0.018]},
    },
}

# Tables 10 and 11: seconds of training, and milliseconds per answer.
TRAINING: dict[str, dict[str, float]] = {
    "sba_loan": {"CounterNet": 1326, "RoCourseNet": 1936},
    "german_credit": {"CounterNet": 46, "RoCourseNet": 97},
    "student": {"CounterNet": 55, "RoCourseNet": 139},
}
PER_ANSWER: dict[str, dict[str, float]] = {
    "sba_loan": {"ROAR-LIME": 131.38, "RBR": 345.91, "CounterNet": 0.67, "RoCourseNet": 0.67},
    "german_credit": {"ROAR-LIME": 104.87, "RBR": 271.34, "CounterNet": 0.51, "RoCourseNet": 0.51},
    "student": {"ROAR-LIME": 213.58, "RBR": 555.91, "CounterNet": 1.00, "RoCourseNet": 1.01},
}

# The authors' stored results on Loan: validity under attack. The paper shows them as curves.
T_STEPS = (1, 2, 3, 5, 7, 10, 13, 15, 20)
E_STEPS = (1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.5)
ATTACKED: dict[str, dict[str, dict[str, list[float]]]] = {
    "T": {
        "CounterNet": {
            "mean": [0.985, 0.985, 0.984, 0.980, 0.972, 0.947, 0.914, 0.886, 0.754],
            "sd": [0.012, 0.012, 0.015, 0.014, 0.023, 0.067, 0.109, 0.125, 0.179],
        },
        "RoCourseNet": {
            "mean": [0.985, 0.985, 0.985, 0.984, 0.982, 0.980, 0.978, 0.975, 0.961],
            "sd": [0.014, 0.013, 0.015, 0.014, 0.014, 0.016, 0.016, 0.017, 0.022],
        },
    },
    "E": {
        "CounterNet": {
            "mean": [0.930, 0.925, 0.896, 0.886, 0.884, 0.882, 0.882],
            "sd": [0.048, 0.054, 0.107, 0.122, 0.125, 0.129, 0.127],
        },
        "RoCourseNet": {
            "mean": [0.974, 0.974, 0.973, 0.974, 0.974, 0.974, 0.977],
            "sd": [0.020, 0.018, 0.018, 0.016, 0.018, 0.018, 0.019],
        },
    },
}


def reported(dataset: str) -> dict[str, Any]:
    """All of it about one dataset."""
    out: dict[str, Any] = {"tables": REPORTED[dataset]}
    for name, table in (("prediction", PREDICTION), ("training", TRAINING), ("per answer", PER_ANSWER)):
        if dataset in table:
            out[name] = table[dataset]
    if dataset == "sba_loan":
        out["attacked"] = {"T": list(T_STEPS), "E": list(E_STEPS), "validity": ATTACKED}
    return out
