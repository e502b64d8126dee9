"""Tables: files by extension, and datasets that come with their schema.

>>> import holdfast as hf
>>> len(hf.datasets.german_credit().X)
1000
"""

# isort: skip_file

from typing import Any, Literal, overload

from holdfast.datasets.catalogue import CATALOGUE, DATASETS, About, describe
from holdfast.datasets.dataset import Dataset, Images
from holdfast.datasets.fetch import data_directory, data_file
from holdfast.datasets.german import (
    german_credit,
    german_rocoursenet_corrected,
    german_rocoursenet_original,
    german_statlog,
    south_german,
)
from holdfast.datasets.health import ctg, seizure, warfarin
from holdfast.datasets.images import fashion_mnist, letters, mnist
from holdfast.datasets.labelled import LabelledTable, held_out, read_labelled
from holdfast.datasets.loans import (
    give_me_some_credit,
    heloc,
    heloc_full,
    lending_club,
    sba_california,
    sba_loan,
    taiwan_credit,
)
from holdfast.datasets.people import (
    adult,
    bail,
    bank_marketing,
    california_housing,
    compas,
    law_school,
    student,
    student_math,
)
from holdfast.datasets.synthetic import (
    circles,
    covariate_shift,
    label_shift,
    linearly_separable,
    moons,
    overlapping,
)
from holdfast.datasets.tables import (
    EXACT,
    MISSING_WORDS,
    known_extension,
    read_table,
    records,
    write_table,
)
from holdfast._core.checks import did_you_mean
from holdfast.errors import FileError, SettingError

__all__ = [
    "CATALOGUE",
    "DATASETS",
    "EXACT",
    "MISSING_WORDS",
    "About",
    "Dataset",
    "Images",
    "LabelledTable",
    "adult",
    "bail",
    "bank_marketing",
    "california_housing",
    "circles",
    "compas",
    "covariate_shift",
    "ctg",
    "data_directory",
    "data_file",
    "describe",
    "fashion_mnist",
    "german_credit",
    "german_rocoursenet_corrected",
    "german_rocoursenet_original",
    "german_statlog",
    "give_me_some_credit",
    "held_out",
    "heloc",
    "heloc_full",
    "known_extension",
    "label_shift",
    "law_school",
    "lending_club",
    "letters",
    "linearly_separable",
    "load",
    "mnist",
    "moons",
    "overlapping",
    "read_labelled",
    "read_table",
    "records",
    "sba_california",
    "sba_loan",
    "seizure",
    "south_german",
    "student",
    "student_math",
    "taiwan_credit",
    "warfarin",
    "write_table",
]

ImagesName = Literal["fashion_mnist", "letters", "mnist"]
TableName = Literal[
    "adult",
    "bail",
    "bank_marketing",
    "california_housing",
    "circles",
    "compas",
    "covariate_shift",
    "ctg",
    "german_credit",
    "german_rocoursenet_corrected",
    "german_rocoursenet_original",
    "german_statlog",
    "give_me_some_credit",
    "heloc",
    "heloc_full",
    "label_shift",
    "law_school",
    "lending_club",
    "linearly_separable",
    "moons",
    "overlapping",
    "sba_california",
    "sba_loan",
    "seizure",
    "south_german",
    "student",
    "student_math",
    "taiwan_credit",
    "warfarin",
]


@overload
def load(name: ImagesName) -> Images: ...
@overload
def load(name: TableName, **settings: Any) -> Dataset: ...
@overload
def load(name: str, **settings: Any) -> Any: ...
def load(name: str, **settings: Any) -> Any:
    """A dataset by name; `describe()` lists them. Settings are those of the function of the same
    name."""
    if name not in DATASETS:
        raise FileError(f"unknown dataset {name!r}; {did_you_mean(name, DATASETS)}")
    try:
        return DATASETS[name](**settings)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise SettingError(f"{name} has no such setting: {error}") from None
