"""German Credit in its four versions."""

from importlib.resources import files
from typing import Any

import pandas as pd

from holdfast.datasets.catalogue import About, dataset, from_zero, stored_table
from holdfast.datasets.dataset import Dataset
from holdfast.schema.schema import Schema

HOFMANN = "H. Hofmann, Statlog (German Credit Data), UCI, 1994"
GROEMPING = "U. Groemping, South German Credit Data: Correcting a Widely Used Data Set, Report 4/2019, BHT Berlin"
ROCOURSENET = "H. Guo et al., RoCourseNet: Robust Training of a Prediction Aware Recourse Model, CIKM 2023"
OUTCOME = {"bad": "denied", "good": "approved"}


@dataset(
    1000,
    20,
    2,
    licence="CC BY 4.0",
    citation=HOFMANN,
    source="UCI 144, level names as in OpenML 31",
    favourable="approved",
    papers={"black2022": 200},
    without_files="bundled",
)
def german_credit(about: About) -> Dataset:
    """1,000 German loan applicants (shipped with the library): good risks are approved, bad ones denied."""
    with (files("holdfast.datasets") / "bundled" / "german_credit.csv.gz").open("rb") as file:
        table = pd.read_csv(file, compression="gzip", keep_default_na=False)
    y = table.pop("class").map(OUTCOME)
    schema = Schema.infer(
        table,
        fixed=["credit_history", "purpose", "personal_status", "age", "num_dependents", "foreign_worker", "job"],
        up=["employment", "residence_since"],
        down=["credit_amount"],
        ordered={"employment": ["unemployed", "<1", "1<=X<4", "4<=X<7", ">=7"]},
        bounds={"credit_amount": (250, 20000), "duration": (4, 72)},
        words={
            "duration": {"label": "the loan", "unit": "months", "verbs": ("lengthen", "shorten")},
            "credit_amount": {"label": "the amount", "unit": "DM"},
            "installment_commitment": {"label": "instalments", "unit": "% of income"},
        },
    )
    return about.dataset(table, y, schema)


PAST = ["age", "personal_status_sex", "foreign_worker", "people_liable", "credit_history", "purpose", "job"]


@dataset(
    1000,
    20,
    2,
    licence="CC BY 4.0",
    citation=HOFMANN,
    source="UCI 144, german.data",
    files=("german_credit/german_statlog.csv.gz",),
    favourable="approved",
    papers={"black2022": 200},
)
def german_statlog(about: About) -> Dataset:
    """The same applicants with the labels and the column names of the corrected table, in the order of UCI's file."""
    years = ["unemployed", "... < 1 year", "1 <= ... < 4 years", "4 <= ... < 7 years", "... >= 7 years"]
    return _decoded(about, {"employment_duration": years}, up=["employment_duration", "present_residence"])


@dataset(
    1000,
    20,
    2,
    licence="CC BY 4.0",
    citation=GROEMPING,
    source="UCI 522, SouthGermanCredit.asc",
    files=("german_credit/south_german.csv.gz",),
    favourable="approved",
)
def south_german(about: About) -> Dataset:
    """German Credit corrected: the same applicants in another order, with the codes read as the bank meant them."""
    years = ["< 1 yr", "1 <= ... < 4 yrs", "4 <= ... < 7 yrs", ">= 7 yrs"]
    ordered = {
        "employment_duration": ["unemployed", *years],
        "present_residence": years,
        "installment_rate": ["< 20", "20 <= ... < 25", "25 <= ... < 35", ">= 35"],
        "number_credits": ["1", "2-3", "4-5", ">= 6"],
    }
    return _decoded(about, ordered, up=["employment_duration", "present_residence"])


def _decoded(about: About, ordered: dict[str, list[str]], up: list[str]) -> Dataset:
    table = stored_table(about.files[0], keep_default_na=False)
    y = table.pop("credit_risk").map(OUTCOME)
    bounds = from_zero(table) | {"amount": (250, 20000), "duration": (4, 72)}
    coded = {name: (1, 4) for name in ("installment_rate", "present_residence") if name not in ordered}
    schema = Schema.infer(table, fixed=PAST, up=up, down=["amount"], ordered=ordered, bounds=bounds | coded)
    return about.dataset(table, y, schema)


_PAIR: dict[str, Any] = {
    "licence": "CC BY 4.0 (data), Apache-2.0 (repository)",
    "citation": ROCOURSENET,
    "favourable": "approved",
    "papers": {"rocoursenet": 0.25},
}


@dataset(
    1000,
    9,
    2,
    source="GitHub BirkhoffG/RoCourseNet, assets/data/german_credit/org.csv",
    files=("german_credit/rocoursenet_original.csv.gz",),
    **_PAIR,
)
def german_rocoursenet_original(about: About) -> Dataset:
    """Nine columns of German Credit before the correction, as RoCourseNet uses them."""
    return _rocoursenet(about)


@dataset(
    1000,
    9,
    2,
    source="GitHub BirkhoffG/RoCourseNet, assets/data/german_credit/upt.csv",
    files=("german_credit/rocoursenet_corrected.csv.gz",),
    **_PAIR,
)
def german_rocoursenet_corrected(about: About) -> Dataset:
    """Nine columns of German Credit after the correction, as RoCourseNet uses them."""
    return _rocoursenet(about)


def _rocoursenet(about: About) -> Dataset:
    """Scaled and coded over both tables, so that a model of one can read the other."""
    pair = [stored_table(f"german_credit/rocoursenet_{which}.csv.gz") for which in ("original", "corrected")]
    own = pair[about.name == "german_rocoursenet_corrected"].astype("int64")
    y = own.pop("GoodCustomer (label)").map({0: "denied", 1: "approved"})
    both = pd.concat(pair).astype("int64").drop(columns="GoodCustomer (label)")
    codes = ["Present residence", "Status", "History"]
    low, high = both.min(), both.max()
    bounds = {name: (float(low[name]), float(high[name])) for name in both.columns if name not in codes}
    fixed = ["Age", "Number people", "History"]
    schema = Schema.infer(both, fixed=fixed, categories=codes, bounds=bounds, scaling="minmax")
    return about.dataset(own, y, schema)
