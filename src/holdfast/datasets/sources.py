"""The files of the datasets, listed in `sources.toml`, and how what their publishers offer becomes them."""

import tomllib
from importlib.resources import files

from holdfast.datasets.fetch import File
from holdfast.datasets.published_formats import (
    Convert,
    adult,
    california,
    compas,
    member,
    south_german,
    statlog,
    unpacked,
)

# Where the content is more than the parts that the source has, one after the other.
CONVERSIONS: dict[str, Convert] = {
    "german_credit/german_statlog.csv.gz": statlog,
    "german_credit/south_german.csv.gz": south_german,
    "student/student-por.csv.gz": member("student-por.csv", drop=b'"'),
    "student/student-mat.csv.gz": member("student-mat.csv"),
    "adult/adult.csv.gz": adult,
    "compas/compas-scores-two-years.csv.gz": compas,
    "bank_marketing/bank-additional-full.csv.gz": member("bank-additional/bank-additional-full.csv"),
    "california_housing/california_housing.csv.gz": california,
}


def _read_sources() -> dict[str, File]:
    entries = tomllib.loads((files("holdfast.datasets") / "sources.toml").read_text(encoding="utf-8"))
    out: dict[str, File] = {}
    for path, entry in entries.items():
        urls = tuple(entry.pop("urls", ()))
        packed_there = bool(urls) and all(url.endswith(".gz") for url in urls)
        convert = CONVERSIONS.get(path, unpacked if packed_there else b"".join)
        out[path] = File(path, urls=urls, convert=convert, **entry)
    return out


FILES = _read_sources()
