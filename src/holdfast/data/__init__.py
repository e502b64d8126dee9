"""Tables: files by extension, and datasets that come with their schema."""

from typing import Any, Literal, overload

from holdfast.data.catalogue import CATALOGUE as CATALOGUE
from holdfast.data.catalogue import DATASETS as DATASETS
from holdfast.data.catalogue import About as About
from holdfast.data.catalogue import describe as describe
from holdfast.data.dataset import Dataset as Dataset
from holdfast.data.dataset import Images as Images
from holdfast.data.fetch import data_directory as data_directory
from holdfast.data.fetch import data_file as data_file
from holdfast.data.files import EXACT as EXACT
from holdfast.data.files import MISSING_WORDS as MISSING_WORDS
from holdfast.data.files import known_extension as known_extension
from holdfast.data.files import read_table as read_table
from holdfast.data.files import records as records
from holdfast.data.files import write_table as write_table
from holdfast.data.german import german_credit as german_credit
from holdfast.data.german import german_rocoursenet_corrected as german_rocoursenet_corrected
from holdfast.data.german import german_rocoursenet_original as german_rocoursenet_original
from holdfast.data.german import german_statlog as german_statlog
from holdfast.data.german import south_german as south_german
from holdfast.data.health import ctg as ctg
from holdfast.data.health import seizure as seizure
from holdfast.data.health import warfarin as warfarin
from holdfast.data.images import fashion_mnist as fashion_mnist
from holdfast.data.images import letters as letters
from holdfast.data.images import mnist as mnist
from holdfast.data.loans import give_me_some_credit as give_me_some_credit
from holdfast.data.loans import heloc as heloc
from holdfast.data.loans import heloc_full as heloc_full
from holdfast.data.loans import lending_club as lending_club
from holdfast.data.loans import sba_california as sba_california
from holdfast.data.loans import sba_loan as sba_loan
from holdfast.data.loans import taiwan_credit as taiwan_credit
from holdfast.data.people import adult as adult
from holdfast.data.people import bail as bail
from holdfast.data.people import bank_marketing as bank_marketing
from holdfast.data.people import california_housing as california_housing
from holdfast.data.people import compas as compas
from holdfast.data.people import law_school as law_school
from holdfast.data.people import student as student
from holdfast.data.people import student_math as student_math
from holdfast.data.synthetic import circles as circles
from holdfast.data.synthetic import covariate_shift as covariate_shift
from holdfast.data.synthetic import label_shift as label_shift
from holdfast.data.synthetic import linearly_separable as linearly_separable
from holdfast.data.synthetic import moons as moons
from holdfast.data.synthetic import overlapping as overlapping
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
