import gzip
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from holdfast.datasets import published_formats as convert
from holdfast.datasets.published_formats import COLUMNS, SOUTH_GERMAN, STATLOG
from holdfast.datasets.sources import FILES


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(name: str, data: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr(name, data)
    return archive.getvalue()


@pytest.mark.data
def test_german_credit_as_published_gives_the_stored_tables(data_dir: Path) -> None:
    folder = data_dir / "german_credit"
    published = gzip.decompress((folder / "german.data.gz").read_bytes())
    assert (
        digest(convert.statlog([published])) == FILES["german_credit/german_statlog.csv.gz"].content
    )
    corrected = gzip.decompress((folder / "SouthGermanCredit.asc.gz").read_bytes())
    archive = zipped("SouthGermanCredit.asc", corrected)
    assert (
        digest(convert.south_german([archive]))
        == FILES["german_credit/south_german.csv.gz"].content
    )
    assert len(STATLOG) == 54
    assert set(SOUTH_GERMAN) <= set(COLUMNS)


@pytest.mark.data
def test_adult_as_published_gives_the_stored_table(data_dir: Path) -> None:
    """The two published files are known by their checksums; made from the stored table, they give
    it back."""
    stored = gzip.decompress((data_dir / "adult" / "adult.csv.gz").read_bytes())
    rows = [line.rpartition(",") for line in stored.decode().splitlines()[1:]]
    train = (
        "".join(f"{row.replace(',', ', ')}\n" for row, _, part in rows if part == "train") + "\n"
    )
    test = "".join(f"{row.replace(',', ', ')}.\n" for row, _, part in rows if part == "test")
    published = [train.encode(), f"|1x3 Cross validator\n{test}\n".encode()]
    assert [digest(part) for part in published] == [
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    ]
    assert convert.adult(published) == stored
