"""Medicine: cardiotocography, epileptic seizures, warfarin."""

from typing import Any

import numpy as np
import pandas as pd

from holdfast.datasets.catalogue import About, dataset, from_zero, stored_table
from holdfast.datasets.dataset import Dataset
from holdfast.schema.schema import Schema


@dataset(
    2126,
    21,
    2,
    licence="CC BY 4.0",
    citation="D. Campos and J. Bernardes, Cardiotocography, UCI, 2010",
    source="UCI 193, CTG.xls",
    files=("ctg/ctg.csv.gz",),
    favourable="healthy",
    papers={"black2022": 425},
)
def ctg(about: About) -> Dataset:
    """Cardiotocograms, healthy or suspect (NSP 2 and 3). Recordings have several rows: see `split(by_group=True)`."""
    table = stored_table(about.files[0])
    y = pd.Series(np.where(table["NSP"] > 1, "suspect", "healthy"), index=table.index)
    X = table.drop(columns=["recording", "CLASS", "NSP"])
    return about.dataset(X, y, Schema.infer(X, bounds=from_zero(X), scaling="minmax"), groups=table["recording"])


@dataset(
    11500,
    178,
    2,
    licence="research use, cite Andrzejak et al.",
    citation="R. Andrzejak et al., Indications of nonlinear deterministic structures in brain activity, 2001",
    source="UCI 388, data.csv",
    files=("epileptic_seizure/epileptic_seizure_recognition.csv.gz",),
    favourable="none",
    papers={"black2022": 3550},
)
def seizure(about: About) -> Dataset:
    """Seconds of EEG, with a seizure or with none. 23 rows are of one recording: see `split(by_group=True)`."""
    table = stored_table(about.files[0])
    name, kind = table.pop(str(table.columns[0])), table.pop("y")
    y = pd.Series(np.where(kind == 1, "seizure", "none"), index=table.index)
    return about.dataset(table, y, Schema.infer(table), groups=name.str.partition(".")[2])


CODES = {"0": "no", "1": "yes"}


@dataset(
    4384,
    15,
    3,
    licence="CC BY-SA 4.0",
    citation="International Warfarin Pharmacogenetics Consortium, Estimation of the Warfarin Dose, NEJM, 2009",
    source="PharmGKB, PS206767-553247439.xls",
    files=("warfarin/warfarin_iwpc.csv.gz",),
    favourable="low",
    papers={"black2022": 0.25},
)
def warfarin(about: About) -> Dataset:
    """Patients and the weekly dose of warfarin they need: low (below 21 mg), medium, high (above 49 mg).

    Rows without dose, age, height, weight or gender are left out. In the other columns what is not known is the level
    "unknown", and no answer moves there. Age is in decades; enzyme inducers are carbamazepine, phenytoin and rifampin.
    """
    missing: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_values": ["NA", ""]}
    table = stored_table(about.files[0], **missing)
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
    taken, known = (inducers == "1").any(axis=1), inducers.notna().any(axis=1)
    X["Enzyme inducers"] = np.select([taken, known], ["yes", "no"], "unknown").astype(object)
    genes = ["CYP2C9 consensus", "VKORC1 -1639 consensus"]
    X[genes] = table[genes].fillna("unknown")
    dose = table["Therapeutic Dose of Warfarin"].astype("float64")
    y = pd.Series(np.select([dose < 21, dose <= 49], ["low", "medium"], "high"), index=X.index)
    free = [*drugs, "Enzyme inducers"]
    schema = Schema.infer(
        X,
        fixed=["Gender", "Race", "Age", "Height (cm)", *ill, *genes],
        allowed={name: ["no", "yes"] for name in free},
        bounds={"Weight (kg)": (30, 240)},
    )
    return about.dataset(X, y, schema)
