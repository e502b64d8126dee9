"""The files of the datasets, listed in `sources.toml`, and how what their publishers offer becomes
them."""

from holdfast.datasets import published_formats as published
from holdfast.datasets.fetch import File, shipped_toml

# Where the content is more than the parts that the source has, one after the other.
CONVERSIONS: dict[str, published.Convert] = {
    "german_credit/german_statlog.csv.gz": published.statlog,
    "german_credit/south_german.csv.gz": published.south_german,
    "student/student-por.csv.gz": published.member("student-por.csv", drop=b'"'),
    "student/student-mat.csv.gz": published.member("student-mat.csv"),
    "adult/adult.csv.gz": published.adult,
    "compas/compas-scores-two-years.csv.gz": published.compas,
    "bank_marketing/bank-additional-full.csv.gz": published.member(
        "bank-additional/bank-additional-full.csv"
    ),
    "california_housing/california_housing.csv.gz": published.california,
}


def _read_sources() -> dict[str, File]:
    out: dict[str, File] = {}
    for path, entry in shipped_toml("sources.toml").items():
        urls = tuple(entry.pop("urls", ()))
        packed_there = bool(urls) and all(url.endswith(".gz") for url in urls)
        convert = CONVERSIONS.get(path, published.unpacked if packed_there else b"".join)
        out[path] = File(path, urls=urls, convert=convert, **entry)
    return out


FILES = _read_sources()
