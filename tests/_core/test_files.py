"""Outputs are whole or absent, whatever fails."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast._core import files
from holdfast.errors import FileError
from support.faulty_files import Faults, each_fault, each_kill

OLD = b"old" * 1000
NEW = b"new!" * 2000


def write_new(path: Path) -> None:
    with files.whole_file(path) as file:
        for at in range(0, len(NEW), 3000):
            file.write(NEW[at : at + 3000])


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("faults", [each_fault, each_kill])
def test_a_file_is_the_old_or_the_new_one_whichever_step_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: bool,
    faults: Callable[..., Iterator[Faults]],
) -> None:
    place = tmp_path / "result.csv"
    before = OLD if there else None

    def start() -> None:
        place.unlink(missing_ok=True)
        if there:
            place.write_bytes(OLD)

    start()
    seen = list[Any]()
    for fault in faults(monkeypatch, lambda: write_new(place)):
        found = place.read_bytes() if place.exists() else None
        assert found in (before, NEW), fault.steps
        seen.append(found)
        write_new(place)  # the next one works, and leaves nothing else
        assert os.listdir(tmp_path) == ["result.csv"]
        assert place.read_bytes() == NEW
        start()
    assert seen[0] == before
    assert seen[-1] == NEW
    assert len(seen) > 6


def test_what_the_body_raises_leaves_the_old_file(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_bytes(OLD)

    def fails(error: BaseException) -> None:
        with files.whole_file(place) as file:
            file.write(NEW)
            raise error

    for error in (KeyboardInterrupt(), ValueError("no"), MemoryError()):
        with pytest.raises(type(error)):
            fails(error)
        assert place.read_bytes() == OLD
        assert os.listdir(tmp_path) == ["a.csv"]


def test_a_writer_that_lives_is_not_swept(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    with files.whole_file(place) as slow:
        slow.write(NEW)
        files.write_whole(place, OLD)
        assert len(os.listdir(tmp_path)) == 2
    assert place.read_bytes() == NEW
    assert os.listdir(tmp_path) == ["a.csv"]


def test_writers_at_once_each_write_a_whole_file(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    contents = [bytes([i]) * 50_000 for i in range(8)]
    failed = list[BaseException]()

    def work(content: bytes) -> None:
        try:
            for _ in range(20):
                files.write_whole(place, content)
                assert place.read_bytes() in contents
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert os.listdir(tmp_path) == ["a.csv"]


def test_permissions_are_the_usual_ones_or_those_of_the_old_file(tmp_path: Path) -> None:
    for mask in (0o022, 0o077, 0o002):
        before = os.umask(mask)
        try:
            place = tmp_path / f"{mask}.csv"
            files.write_whole(place, NEW)
        finally:
            os.umask(before)
        assert stat.S_IMODE(place.stat().st_mode) == 0o666 & ~mask
        place.chmod(0o640)
        files.write_whole(place, OLD)
        assert stat.S_IMODE(place.stat().st_mode) == 0o640


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "real.csv"
    link = tmp_path / "link.csv"
    link.symlink_to(target)
    files.write_whole(link, OLD)  # also where there is nothing yet
    files.write_whole(link, NEW)
    assert link.is_symlink()
    assert target.read_bytes() == NEW
    assert os.listdir(target.parent) == ["real.csv"]


def test_names_that_are_as_long_as_they_may_be(tmp_path: Path) -> None:
    place = tmp_path / ("é" * 125 + ".csv")
    files.write_whole(place, NEW)
    assert place.read_bytes() == NEW


def test_what_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    cases = {
        tmp_path / "folder": "it is a directory",
        Path(): "it is a directory",
        tmp_path / "pipe": "it is not a regular file",
        Path("/dev/null"): "it is not a regular file",
        tmp_path / "none" / "a.csv": "there is no directory",
        Path("/dev/null/a.csv"): "cannot write",
        tmp_path / ("a" * 300): "File name too long",
        tmp_path / "a\0b": "null",
        tmp_path / "loop": "cannot write",
    }
    for path, why in cases.items():
        with pytest.raises(FileError, match=why), files.whole_file(path):
            pytest.fail("the work began")
    assert sorted(os.listdir(tmp_path)) == ["folder", "loop", "pipe"]


def test_a_file_that_is_read_only_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.csv"
    place.write_bytes(OLD)
    monkeypatch.setattr(files.os, "access", lambda *_: False)  # root may write to any file
    with pytest.raises(FileError, match="no permission"):
        files.write_whole(place, NEW)
    assert place.read_bytes() == OLD


def test_only_regular_files_of_a_size_are_read(tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.write_bytes(OLD)
    assert files.read_bytes(place, 3000) == OLD
    with pytest.raises(FileError, match="3,000 bytes, more than the 2,999"):
        files.read_bytes(place, 2999)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="not a regular file"):
        files.read_bytes(tmp_path / "pipe", 10)  # and does not hang
