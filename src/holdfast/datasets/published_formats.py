"""From files as published to the files of the data directory.

Tests compare the two German tables and Adult with the published files, byte by byte. The other
conversions follow the description of the published file only; if a source differs in one byte, its
checksum says so and nothing is used.
"""

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Iterable, Sequence

from holdfast.datasets.fetch import shipped_toml

Convert = Callable[[Sequence[bytes]], bytes]

_CODES = shipped_toml("codes.toml")
COLUMNS: list[str] = _CODES["columns"]  # of German Credit
STATLOG: dict[str, str] = _CODES["statlog"]  # a code names its column too
SOUTH_GERMAN: dict[str, dict[str, str]] = _CODES["south_german"]  # column -> code -> meaning


def unpacked(parts: Sequence[bytes]) -> bytes:
    """A gzip file."""
    return gzip.decompress(parts[0])


def member(name: str, *, drop: bytes = b"") -> Convert:
    """A file in a zip archive, without some bytes (quotes, for example)."""

    def convert(parts: Sequence[bytes]) -> bytes:
        with zipfile.ZipFile(io.BytesIO(parts[0])) as archive:
            data = archive.read(name)
        return data.replace(drop, b"") if drop else data

    return convert


def _written(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def statlog(parts: Sequence[bytes]) -> bytes:
    """`german.data`, codes replaced by the published labels."""
    rows = [line.split() for line in parts[0].decode().splitlines()]
    risk = {"1": "good", "2": "bad"}
    return _written(
        [COLUMNS, *([*(STATLOG.get(v, v) for v in row[:-1]), risk[row[-1]]] for row in rows)]
    )


def south_german(parts: Sequence[bytes]) -> bytes:
    """`SouthGermanCredit.asc` in its archive, codes replaced by the labels of its code table."""
    _, *lines = member("SouthGermanCredit.asc")(parts).decode().splitlines()
    labels = [SOUTH_GERMAN.get(name, {}) for name in COLUMNS]
    rows = [
        [known.get(v, v) for known, v in zip(labels, line.split(), strict=True)] for line in lines
    ]
    return _written([COLUMNS, *rows])


ADULT = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,"
    "sex,capital-gain,capital-loss,hours-per-week,native-country,income,split"
)


def adult(parts: Sequence[bytes]) -> bytes:
    """`adult.data` and `adult.test` below each other: no blanks, no dot after a label."""
    lines = [ADULT]
    for part, split in zip(parts, ("train", "test"), strict=True):
        rows = [line.replace(", ", ",").removesuffix(".") for line in part.decode().splitlines()]
        lines += [f"{row},{split}" for row in rows if row and not row.startswith("|")]
    return ("\n".join(lines) + "\n").encode()


IDENTIFIERS = {"name", "first", "last", "dob", "c_case_number", "r_case_number", "vr_case_number"}


def compas(parts: Sequence[bytes]) -> bytes:
    """ProPublica's table without names, dates of birth and case numbers."""
    header, *rows = csv.reader(io.StringIO(parts[0].decode(), newline=""))
    kept = [i for i, name in enumerate(header) if name not in IDENTIFIERS]
    names = [f"{header[i]}.1" if header[i] in header[:i] else header[i] for i in kept]
    return _written([names, *([row[i] for i in kept] for row in rows)])


def california(parts: Sequence[bytes]) -> bytes:
    """`housing.csv` with the value of the house last and integers written as such."""
    header, *rows = csv.reader(io.StringIO(parts[0].decode(), newline=""))
    order = [*(name for name in header if name != "median_house_value"), "median_house_value"]
    whole = {"housing_median_age", "total_rooms", "population", "households", "median_house_value"}
    places = [(header.index(name), name in whole) for name in order]
    return _written(
        [
            order,
            *(
                [row[i].removesuffix(".0") if short else row[i] for i, short in places]
                for row in rows
            ),
        ]
    )
