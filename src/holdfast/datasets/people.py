"""People and places: students, income, reoffending, law school, bank marketing, housing."""

import numpy as np
import pandas as pd

from holdfast.datasets.catalogue import About, dataset, from_zero
from holdfast.datasets.dataset import Dataset
from holdfast.schema.infer import InferSettings

GRADES = ["F", "D", "C", "B", "A"]


@dataset
def student(about: About, *, rocoursenet: bool = False) -> Dataset:
    """Pupils and their final grade in Portuguese: high from 14 of 20; the parts are the schools GP
    and MS.

    RoCourseNet's columns: earlier grades as letters, F below 10 to A from 16. With `rocoursenet`,
    all columns but age and failures are plain categories as in that paper; otherwise numbers stay
    numbers and grades are ordered.
    """
    return _pupils(about, rocoursenet)


@dataset
def student_math(about: About, *, rocoursenet: bool = False) -> Dataset:
    """The same of mathematics; many of the pupils are in both tables."""
    return _pupils(about, rocoursenet)


def _pupils(about: About, rocoursenet: bool) -> Dataset:
    # The RoCourseNet paper calls a column continuous or a category, and nothing else; otherwise
    # what has an order keeps it, so that a grade can rise step by step.
    table = about.table(sep=";")
    numbers = ["failures", "age"]
    named = [
        "G2",
        "G1",
        "higher",
        "goout",
        "Mjob",
        "Fjob",
        "health",
        "freetime",
        "absences",
        "Walc",
        "famrel",
    ]
    X = table[[*numbers, *named, "Medu", "Fedu"]].copy()
    for grade in ("G1", "G2"):
        letters = np.digitize(table[grade].astype(int), [10, 12, 14, 16])
        X[grade] = np.array(GRADES, dtype=object)[letters]
    y = pd.Series(np.where(table["G3"] >= 14, "high", "low"), index=X.index)
    settings: InferSettings = {"fixed": ["age", "failures", "Mjob", "Fjob", "Medu", "Fedu"]}
    if rocoursenet:
        settings |= {"categories": [*named, "Medu", "Fedu"], "scaling": "minmax"}
    else:
        scale = dict.fromkeys(["goout", "health", "freetime", "Walc", "famrel"], (1.0, 5.0))
        settings |= {
            "bounds": scale | {"absences": (0.0, 93.0)},
            "ordered": dict.fromkeys(("G1", "G2"), GRADES),
        }
    return about.dataset(X, y, parts=table["school"], **settings)


@dataset
def adult(about: About) -> Dataset:
    """Income in the US census of 1994, above 50,000 dollars or not; the parts are UCI's train and
    test.

    The census weight is left out, and so is the number of years in school, which repeats the
    education. "?" is a level for what is not known; no answer moves there. The counterfactual
    training paper uses `part("train")`.
    """
    table = about.table(keep_default_na=False)
    years = table.pop("education-num")
    y = table.pop("income")
    parts = table.pop("split")
    X = table.drop(columns="fnlwgt")
    settings: InferSettings = {
        "fixed": ["age", "sex", "race", "native-country", "relationship", "marital-status"],
        "up": ["education"],
        "ordered": {"education": table["education"].groupby(years).first().tolist()},
        "allowed": {name: sorted(set(X[name]) - {"?"}) for name in ("workclass", "occupation")},
        "bounds": {
            "capital-gain": (0, 99999),
            "capital-loss": (0, 4356),
            "hours-per-week": (1, 99),
        },
    }
    return about.dataset(X, y, parts=parts, **settings)


@dataset
def compas(about: About) -> Dataset:
    """Defendants in Broward County and whether they reoffended within two years.

    ProPublica's filter: charged within 30 days of the screening, a known outcome, no ordinary
    traffic offence, a score. `days_in_jail` is counted from the dates. All that is past is fixed.
    """
    table = about.table(keep_default_na=True)
    near = table["days_b_screening_arrest"].between(-30, 30)
    kept = (
        near
        & (table["is_recid"] != -1)
        & (table["c_charge_degree"] != "O")
        & table["score_text"].notna()
    )
    table = table[kept].reset_index(drop=True)
    counts = ["juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"]
    X = table[["sex", "age", "race", *counts, "c_charge_degree"]].copy()
    stay = pd.to_datetime(table["c_jail_out"]) - pd.to_datetime(table["c_jail_in"])
    X["days_in_jail"] = stay.dt.days.clip(lower=0)
    y = table["two_year_recid"].map({0: "stayed free", 1: "reoffended"})
    return about.dataset(
        X, y, fixed=["sex", "age", "race", *counts], bounds={"days_in_jail": (0, 800)}
    )


@dataset
def bail(about: About) -> Dataset:
    """People released from prison in North Carolina and whether they reoffended; the parts are
    '1978' and '1980'.

    Papers call it the bail data. The 8,519 rows with missing covariates (FILE = 3), where missing
    is written as 0, are left out, and so are the columns of the follow-up. Age and time served are
    in months.
    """
    table = about.table()
    table = table[table["FILE"] < 3].reset_index(drop=True)
    parts = pd.Series(np.where(table["FOLLOW"] >= 70, "1978", "1980"), index=table.index)
    y = table["RECID"].map({0: "stayed free", 1: "reoffended"})
    table = table.drop(columns=["FOLLOW", "RECID", "TIME", "FILE"])
    flags = [
        name for name in table.columns if name not in ("PRIORS", "SCHOOL", "RULE", "AGE", "TSERVD")
    ]
    X = table.astype(dict.fromkeys(flags, "bool"))
    past = ["WHITE", "MALE", "AGE", "PRIORS", "TSERVD", "RULE", "FELON", "PROPTY", "PERSON"]
    return about.dataset(X, y, parts=parts, fixed=past, up=["SCHOOL"], bounds={"SCHOOL": (0, 20)})


@dataset
def law_school(about: About) -> Dataset:
    """Law students and whether they passed the bar the first time. The index made of LSAT and UGPA
    is left out."""
    table = about.table(keep_default_na=False).drop(columns="sander_index")
    y = table.pop("first_pf").map({0.0: "failed", 1.0: "passed"})
    bounds = {"LSAT": (10, 48), "UGPA": (0, 4.2)}
    return about.dataset(
        table, y, fixed=["race", "sex", "region_first"], categories=["sex"], bounds=bounds
    )


@dataset
def bank_marketing(about: About) -> Dataset:
    """Calls of a Portuguese bank and whether the client subscribed.

    The duration of the call is left out: it is known only when the outcome is. "unknown" is a
    level; no answer moves there.
    """
    table = about.table(sep=";", keep_default_na=False).drop(columns="duration")
    y = table.pop("y").map({"no": "declined", "yes": "subscribed"})
    economy = ["emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"]
    past = ["age", "marital", "education", "pdays", "previous", "poutcome"]
    levels = {
        name: sorted(set(table[name]) - {"unknown"})
        for name in ("job", "default", "housing", "loan")
    }
    return about.dataset(table, y, fixed=[*past, *economy], allowed=levels, bounds=from_zero(table))


@dataset
def california_housing(about: About) -> Dataset:
    """Blocks of houses in California: is their value above the median? The 207 rows without
    bedrooms are left out."""
    table = about.table()
    value = table.pop("median_house_value")
    y = pd.Series(np.where(value > value.median(), "above", "below"), index=table.index)
    known = table["total_bedrooms"].notna()
    X = table[known].astype({"total_bedrooms": "int64"}).reset_index(drop=True)
    y = y[known].reset_index(drop=True)
    place = ["latitude", "longitude", "ocean_proximity", "housing_median_age"]
    return about.dataset(
        X, y, fixed=place, rules=["total_bedrooms <= total_rooms"], bounds=from_zero(X)
    )
