"""Where files come from. The only server that is ever asked is one on this machine."""

import gzip
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.datasets import fetch
from holdfast.datasets import published_formats as convert
from holdfast.datasets.fetch import File
from holdfast.datasets.sources import FILES
from holdfast.errors import FileError

CONTENT = b"a,b\n" + b"1,2\n" * 5000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Server:
    """Serves the files it is given; knows how to be slow-witted."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                name = self.path.rsplit("/", 1)[1]
                data = server.files.get(name)
                if data is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                if not name.startswith("endless"):
                    self.send_header("Content-Length", str(len(data)))
                if name.startswith("endless"):
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self.wfile.write(b"%x\r\n" % len(data) + data[: len(data) // 2])
                    return
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if name.startswith("cut") else data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(
            target=self.httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def url(self, name: str, data: bytes | None = None) -> str:
        if data is not None:
            self.files[name] = data
        return f"http://127.0.0.1:{self.httpd.server_port}/{name}"

    def stop(self) -> None:
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data directory, an empty cache, no proxy."""
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path


def file(*urls: str, data: bytes = CONTENT) -> File:
    return File("some/table.csv.gz", "0" * 64, sha256(data), urls, by_hand="the attic")


def kept(places: Path) -> list[str]:
    return sorted(
        str(p.relative_to(places / "cache")) for p in (places / "cache").rglob("*") if p.is_file()
    )


# ---- download


def test_a_download_is_checked_cached_and_not_repeated(server: Server, places: Path) -> None:
    wanted = file(server.url("table.csv", CONTENT))
    assert fetch.place(wanted) == "can be downloaded"
    assert fetch.content(wanted) == CONTENT
    assert fetch.place(wanted) == "cached"
    assert kept(places) == ["holdfast/some/table.csv"]
    server.stop()
    assert fetch.content(wanted) == CONTENT
    assert server.asked == ["/table.csv"]


def test_several_files_are_converted_into_one(server: Server) -> None:
    half = len(CONTENT) // 2
    urls = server.url("first.csv", CONTENT[:half]), server.url("second.csv", CONTENT[half:])
    assert fetch.content(file(*urls)) == CONTENT
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("in/table.csv", CONTENT.replace(b"1", b'"1"'))
    zipped = replace(file(server.url("a.zip", archive.getvalue())), path="other.csv.gz")
    assert (
        fetch.content(replace(zipped, convert=convert.member("in/table.csv", drop=b'"'))) == CONTENT
    )
    packed = replace(file(server.url("a.gz", gzip.compress(CONTENT))), path="third.csv.gz")
    assert fetch.content(replace(packed, convert=convert.unpacked)) == CONTENT


def test_a_wrong_checksum_names_both_and_keeps_nothing(server: Server, places: Path) -> None:
    other = CONTENT + b"3,4\n"
    with pytest.raises(FileError, match="wrong checksum") as error:
        fetch.content(file(server.url("table.csv", other)))
    assert sha256(other) in str(error.value)
    assert sha256(CONTENT) in str(error.value)
    assert kept(places) == []


@pytest.mark.parametrize("name", ["cut.csv", "endless.csv"])
def test_a_cut_connection_keeps_nothing(server: Server, places: Path, name: str) -> None:
    with pytest.raises(FileError, match="connection was cut"):
        fetch.content(file(server.url(name, CONTENT)))
    assert kept(places) == []


def test_what_cannot_be_converted_is_not_kept(server: Server, places: Path) -> None:
    wanted = replace(file(server.url("page.html", b"<html>")), convert=convert.member("table.csv"))
    with pytest.raises(FileError, match="not the file that is known"):
        fetch.content(wanted)
    assert kept(places) == []


def test_offline_says_so_and_where_a_copy_goes(
    server: Server, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = file(server.url("table.csv", CONTENT))
    server.stop()
    with pytest.raises(FileError, match=r"offline\?.*set HOLDFAST_DATA"):
        fetch.content(wanted)
    monkeypatch.setenv("HOLDFAST_DATA", str(places / "data"))
    with pytest.raises(FileError, match=r"offline\?.*goes to .*some/table.csv.gz"):
        fetch.content(wanted)
    assert kept(places) == []


def test_a_server_that_has_no_such_file(server: Server) -> None:
    with pytest.raises(FileError, match="404"):
        fetch.content(file(server.url("table.csv")))


def test_a_cache_that_cannot_be_written(server: Server, places: Path) -> None:
    (places / "cache").write_text("a file in the way")
    with pytest.raises(FileError, match="cannot write to the cache"):
        fetch.content(file(server.url("table.csv", CONTENT)))


def test_a_spoilt_cache_is_noticed(server: Server, places: Path) -> None:
    wanted = file(server.url("table.csv", CONTENT))
    fetch.content(wanted)
    (places / "cache" / "holdfast" / "some" / "table.csv").write_bytes(CONTENT[:-1])
    with pytest.raises(FileError, match="remove it"):
        fetch.content(wanted)


def test_a_dataset_through_the_whole_path(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law school rows of our own, from a server of our own, loaded twice with one request."""
    text = "race,sex,LSAT,UGPA,region_first,ZFYA,sander_index,first_pf\n"
    data = (text + "White,1,39.0,3.1,GL,-0.98,0.78,1.0\nBlack,2,30.0,2.9,NE,0.1,0.6,0.0\n").encode()
    path = "law_school/law_data.csv.gz"
    known = replace(FILES[path], content=sha256(data), urls=(server.url("law.csv", data),))
    monkeypatch.setitem(FILES, path, known)
    law = [entry for entry in hf.datasets.describe() if entry["name"] == "law_school"]
    assert law[0]["at_hand"] == "can be downloaded"
    for _ in range(2):
        assert hf.datasets.load("law_school").y.tolist() == ["passed", "failed"]
    assert len(server.asked) == 1


# ---- the data directory


def test_what_only_a_person_can_fetch(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = file()
    assert fetch.place(wanted) == "by hand"
    with pytest.raises(FileError, match=r"get it from the attic.*set HOLDFAST_DATA"):
        fetch.content(wanted)
    monkeypatch.setenv("HOLDFAST_DATA", str(places))
    with pytest.raises(
        FileError, match=r"no file 'some/table.csv.gz' in the data directory.*HOLDFAST_DATA"
    ):
        fetch.content(wanted)
    for entry in FILES.values():
        assert bool(entry.urls) != bool(entry.by_hand), entry.path


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_in_the_data_directory_may_be_compressed_by_anybody(
    places: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", str(places))
    (places / "some").mkdir()
    path = places / "some" / ("table.csv.gz" if packed else "table.csv")
    write = gzip.compress if packed else bytes
    path.write_bytes(write(CONTENT))
    assert fetch.content(file()) == CONTENT
    assert fetch.place(file()) == "data directory"
    path.write_bytes(write(CONTENT + b"5,6\n"))
    with pytest.raises(FileError, match=f"expected {sha256(CONTENT)}"):
        fetch.content(file())
    path.write_bytes(write(CONTENT)[:30])
    with pytest.raises(FileError, match="cannot read" if packed else "expected"):
        fetch.content(file())


def test_the_config_file_names_the_data_directory(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetch.data_directory() is None
    config = places / "config" / "holdfast" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("# nothing yet\n")
    assert fetch.data_directory() is None
    config.write_text(f'data = "{(places / "one").as_posix()}"\n')
    assert fetch.data_directory() == (places / "one", str(config))
    with pytest.raises(
        FileError, match=r"no file 'heloc/heloc.csv.gz' in the data directory .*config.toml"
    ):
        hf.datasets.load("heloc")
    monkeypatch.setenv("HOLDFAST_DATA", str(places / "two"))
    assert fetch.data_directory() == (places / "two", "HOLDFAST_DATA")
    monkeypatch.delenv("HOLDFAST_DATA")
    for wrong, words in (
        ("data = 3", "name of a directory"),
        ("data = ", "cannot read the settings"),
    ):
        config.write_text(wrong)
        with pytest.raises(FileError, match=words):
            fetch.data_directory()


# ---- conversions


def test_compas_loses_who_it_was_and_housing_is_rearranged() -> None:
    header = b"id,name,first,last,sex,dob,priors_count,c_case_number,priors_count\n"
    rows = b'1,"a, b",a,b,Male,1947-04-18,0,13,2\n'
    assert convert.compas([header + rows]) == b"id,sex,priors_count,priors_count.1\n1,Male,0,2\n"
    names = b"longitude,total_rooms,total_bedrooms,%s\n"
    housing = names % b"median_house_value,ocean_proximity" + b"-122.0,880.0,129.0,452600.0,X\n"
    expected = names % b"ocean_proximity,median_house_value" + b"-122.0,880,129.0,X,452600\n"
    assert convert.california([housing]) == expected
