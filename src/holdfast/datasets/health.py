"""Medicine: cardiotocography, epileptic seizures, warfarin."""

import numpy as np
import pandas as pd

from holdfast.datasets.catalogue import About, dataset, from_zero
from holdfast.datasets.dataset import Dataset


@dataset
def ctg(about: About) -> Dataset:
    """Cardiotocograms, healthy or suspect (NSP 2 and 3). Recordings have several rows: see
    `split(by_group=True)`."""
    table = about.table()
    y = pd.Series(np.where(table["NSP"] > 1, "suspect", "healthy"), index=table.index)
    X = table.drop(columns=["recording", "CLASS", "NSP"])
    return about.dataset(X, y, groups=table["recording"], bounds=from_zero(X), scaling="minmax")


@dataset
def seizure(about: About) -> Dataset:
    """Seconds of EEG, with a seizure or with none. 23 rows are of one recording: see
    `split(by_group=True)`."""
    table = about.table()
    name = table.pop(str(table.columns[0]))
    kind = table.pop("y")
    y = pd.Series(np.where(kind == 1, "seizure", "none"), index=table.index)
    return about.dataset(table, y, groups=name.str.partition(".")[2])


CODES = {"0": "no", "1": "yes"}


@dataset
def warfarin(about: About) -> Dataset:
    """Patients and the weekly dose of warfarin they need: low (below 21 mg), medium, high (above 49
    mg).

    Rows without dose, age, height, weight or gender are left out. In the other columns what is not
    known is the level "unknown", and no answer moves there. Age is in decades; enzyme inducers are
    carbamazepine, phenytoin and rifampin.
    """
    table = about.table(dtype=str, keep_default_na=False, na_values=["NA", ""])
    needed = ["Therapeutic Dose of Warfarin", "Age", "Height (cm)", "Weight (kg)", "Gender"]
    table = table[table[needed].notna().all(axis=1)].reset_index(drop=True)
    X = table[["Gender", "Race"]].copy()
    X["Age"] = table["Age"].str[0].astype("int64")
    X[["Height (cm)", "Weight (kg)"]] = table[["Height (cm)", "Weight (kg)"]].astype("float64")
    ill = ["Diabetes", "Congestive Heart Failure and/or Cardiomyopathy", "Valve Replacement"]
    drugs = ["Aspirin", "Simvastatin (Zocor)", "Amiodarone (Cordarone)", "Current Smoker"]
    for name in [*ill, *drugs]:
        X[name] = table[name].map(CODES).fillna("unknown")
    inducers = table[["Carbamazepine (Tegretol)", "Phenytoin (Dilantin)", "Rifampin or Rifampicin"]]
    taken = (inducers == "1").any(axis=1)
    known = inducers.notna().any(axis=1)
    X["Enzyme inducers"] = np.select([taken, known], ["yes", "no"], "unknown").astype(object)
    genes = ["CYP2C9 consensus", "VKORC1 -1639 consensus"]
    X[genes] = table[genes].fillna("unknown")
    dose = table["Therapeutic Dose of Warfarin"].astype("float64")
    y = pd.Series(np.select([dose < 21, dose <= 49], ["low", "medium"], "high"), index=X.index)
    fixed = ["Gender", "Race", "Age", "Height (cm)", *ill, *genes]
    allowed = {name: ["no", "yes"] for name in [*drugs, "Enzyme inducers"]}
    return about.dataset(X, y, fixed=fixed, allowed=allowed, bounds={"Weight (kg)": (30, 240)})
