"""Tables: files by extension, and datasets that come with their schema.

>>> import holdfast as hf
>>> len(hf.datasets.german_credit().X)
1000
"""

from typing import Any, Literal, overload

from holdfast.datasets.catalogue import CATALOGUE as CATALOGUE
from holdfast.datasets.catalogue import DATASETS as DATASETS
from holdfast.datasets.catalogue import About as About
from holdfast.datasets.catalogue import describe as describe
from holdfast.datasets.dataset import Dataset as Dataset
from holdfast.datasets.dataset import Images as Images
from holdfast.datasets.fetch import data_directory as data_directory
from holdfast.datasets.fetch import data_file as data_file
from holdfast.datasets.german import german_credit as german_credit
from holdfast.datasets.german import german_rocoursenet_corrected as german_rocoursenet_corrected
from holdfast.datasets.german import german_rocoursenet_original as german_rocoursenet_original
from holdfast.datasets.german import german_statlog as german_statlog
from holdfast.datasets.german import south_german as south_german
from holdfast.datasets.health import ctg as ctg
from holdfast.datasets.health import seizure as seizure
from holdfast.datasets.health import warfarin as warfarin
from holdfast.datasets.images import fashion_mnist as fashion_mnist
from holdfast.datasets.images import letters as letters
from holdfast.datasets.images import mnist as mnist
from holdfast.datasets.labelled import LabelledTable as LabelledTable
from holdfast.datasets.labelled import held_out as held_out
from holdfast.datasets.labelled import read_labelled as read_labelled
from holdfast.datasets.loans import give_me_some_credit as give_me_some_credit
from holdfast.datasets.loans import heloc as heloc
from holdfast.datasets.loans import heloc_full as heloc_full
from holdfast.datasets.loans import lending_club as lending_club
from holdfast.datasets.loans import sba_california as sba_california
from holdfast.datasets.loans import sba_loan as sba_loan
from holdfast.datasets.loans import taiwan_credit as taiwan_credit
from holdfast.datasets.people import adult as adult
from holdfast.datasets.people import bail as bail
from holdfast.datasets.people import bank_marketing as bank_marketing
from holdfast.datasets.people import california_housing as california_housing
from holdfast.datasets.people import compas as compas
from holdfast.datasets.people import law_school as law_school
from holdfast.datasets.people import student as student
from holdfast.datasets.people import student_math as student_math
from holdfast.datasets.synthetic import circles as circles
from holdfast.datasets.synthetic import covariate_shift as covariate_shift
from holdfast.datasets.synthetic import label_shift as label_shift
from holdfast.datasets.synthetic import linearly_separable as linearly_separable
from holdfast.datasets.synthetic import moons as moons
from holdfast.datasets.synthetic import overlapping as overlapping
from holdfast.datasets.tables import EXACT as EXACT
from holdfast.datasets.tables import MISSING_WORDS as MISSING_WORDS
from holdfast.datasets.tables import known_extension as known_extension
from holdfast.datasets.tables import read_table as read_table
from holdfast.datasets.tables import records as records
from holdfast.datasets.tables import write_table as write_table
from holdfast.errors import FileError, SettingError, did_you_mean

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
    """A dataset by name; `describe()` lists them. Settings are those of the function of the same name."""
    if name not in DATASETS:
        raise FileError(f"unknown dataset {name!r}; {did_you_mean(name, DATASETS)}")
    try:
        return DATASETS[name](**settings)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise SettingError(f"{name} has no such setting: {error}") from None
