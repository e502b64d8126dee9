"""A disk that fails: the n-th step of writing files is refused, or is the last that a process
does."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from holdfast._core import files
from holdfast.errors import FileError

MOST = 500  # steps of one output; with more a test would not end


class Faults:
    """Stands in for `os` where outputs are written, and counts the steps.

    Args:
        at: the number of the step that fails, from 1 on.
        kill: end the process at this step, in place of an error.
    """

    def __init__(self, at: int, *, kill: bool = False) -> None:
        self.at = at
        self.kill = kill
        self.steps = list[str]()

    @property
    def met(self) -> bool:
        """Were there so many steps?"""
        return len(self.steps) >= self.at

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) != self.at:
            return
        if self.kill:
            os._exit(9)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            self.step("open")
        return os.open(path, flags, mode)

    def fdopen(self, handle: int, mode: str) -> Any:
        if "w" not in mode:
            return os.fdopen(handle, mode)
        return io.BufferedWriter(_Raw(handle, self), buffer_size=1000)

    def fsync(self, handle: int) -> None:
        self.step("fsync")
        os.fsync(handle)

    def replace(self, old: Any, new: Any) -> None:
        self.step("replace")
        os.replace(old, new)

    def unlink(self, path: Any) -> None:
        self.step("unlink")
        os.unlink(path)


class _Raw(io.FileIO):
    """A file that is half written when writing fails."""

    def __init__(self, handle: int, faults: Faults) -> None:
        super().__init__(handle, "wb")
        self.faults = faults

    def write(self, data: Any, /) -> int:
        if len(self.faults.steps) + 1 == self.faults.at:
            super().write(bytes(data)[: len(data) // 2])
        self.faults.step("write")
        return super().write(data)


def each_fault(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> Iterator[Faults]:
    """Write again and again, and let the first step fail, then the second, until there are no more;
    yields after each, when the disk is well again."""
    for at in count(1):
        assert at < MOST
        faults = Faults(at)
        told = ""
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", faults)
            try:
                write()
            except FileError as error:
                told = str(error)
        assert told == "" or "No space left on device" in told
        if not faults.met:
            return
        yield faults


def each_kill(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> Iterator[Faults]:
    """The same, in a process that ends at the step."""
    for at in count(1):
        assert at < MOST
        faults = Faults(at, kill=True)
        child = os.fork()
        if not child:
            try:
                monkeypatch.setattr(files, "os", faults)
                write()
            finally:
                os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            return
        yield faults
