"""Outputs are whole or absent: written beside their place, flushed to the disk, and put there when
they are complete.

Whatever stops a writer, and whenever it does, whoever looks finds the old file or the new one. What
a killed writer leaves behind is swept by the next one that writes to the same place: every writer
holds a lock on its temporary file for as long as it lives.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from holdfast.errors import FileError

try:
    import fcntl as locks
except ImportError:  # on Windows, where nobody can remove a file that is open
    locks: Any = None

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
OLD = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
LETTERS = 40  # of a name that its temporary file keeps, which must not become too long
LEFTOVER = re.compile(r"\..{1,40}\.[0-9a-f]{8}\.part", re.DOTALL)
# what file systems answer that cannot flush or lock a folder
UNABLE = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF, errno.EISDIR}


@contextmanager
def whole_file(path: str | Path) -> Generator[IO[bytes]]:
    """A new file to write to, which takes the place of `path` at the end, or vanishes if something
    fails. Through a link, what it points to is replaced; a new file gets the usual permissions, and
    one that takes the place of another those of the other."""
    with error_names(path):
        place = place_of(path)
        sweep(place)
        temporary, file = _beside(place)
        try:
            with file:
                yield file
                _put(file, temporary, place)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        sync_folder(place.parent)


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a file that is never seen half written, in a folder that is made if need be."""
    with error_names(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def error_names(path: str | Path) -> Generator[None]:
    """What the system refuses is an error that names the file."""
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot write {str(path)!r}: {error.strerror or error}") from None


def place_of(path: str | Path) -> Path:
    """Where a file is to be written; an error if there is something else."""
    start = f"cannot write {str(path)!r}"
    try:
        place = Path(os.path.realpath(path))
        mode = _mode(place)
    except (OSError, ValueError) as error:  # too long a name, a loop of links, a NUL
        raise FileError(f"{start}: {getattr(error, 'strerror', None) or error}") from None
    if mode is None:
        if not place.parent.is_dir():
            # in the words of the caller, unless a link leads elsewhere
            named = Path(path).parent
            missing = place.parent if named.is_dir() else named
            raise FileError(f"{start}: there is no directory {str(missing)!r}")
        return place
    if stat.S_ISDIR(mode):
        raise FileError(f"{start}: it is a directory")
    if not stat.S_ISREG(mode):
        raise FileError(f"{start}: it is not a regular file")
    if not os.access(place, os.W_OK):
        raise FileError(f"{start}: no permission")
    return place


def _mode(place: Path) -> int | None:
    """What is there, and who may do what with it; None if there is nothing."""
    try:
        return os.stat(place).st_mode
    except FileNotFoundError:
        return None


def _beside(place: Path) -> tuple[Path, IO[bytes]]:
    """A new file in the same folder, locked."""
    while True:
        temporary = place.with_name(f".{place.name[:LETTERS]}.{secrets.token_hex(4)}.part")
        file = os.fdopen(os.open(temporary, NEW, 0o666), "wb")
        # Between these lines somebody who sweeps may have taken it for a leftover.
        if _lock(file.fileno()) and os.fstat(file.fileno()).st_nlink:
            return temporary, file
        file.close()


def _put(file: IO[bytes], temporary: Path, place: Path) -> None:
    """Flush a file to the disk and put it in its place."""
    file.flush()
    os.fsync(file.fileno())
    mode = _mode(place)
    if mode is not None:
        os.chmod(temporary, stat.S_IMODE(mode))
    if locks is None:
        file.close()
    os.replace(temporary, place)


def sync_folder(folder: Path) -> None:
    """Flush to the disk which files a folder has."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNABLE:
            raise
    finally:
        os.close(handle)


# ---- reading


def read_bytes(path: str | Path, most: int) -> bytes:
    """The whole of a regular file; an error for anything else, which might never end, and for one
    of more than `most` bytes."""
    with os.fdopen(os.open(path, OLD), "rb") as file:
        there = os.fstat(file.fileno())
        if not stat.S_ISREG(there.st_mode):
            raise FileError(f"{str(path)!r} is not a regular file")
        if there.st_size > most:
            raise FileError(
                f"{str(path)!r} has {there.st_size:,} bytes, more than the {most:,} that are read"
            )
        return file.read()


# ---- leftovers


def sweep(place: Path) -> None:
    """Remove what writers of this file left that were killed."""
    start = f".{place.name[:LETTERS]}."
    with suppress(OSError):  # some folders can be written to and not be listed
        for name in os.listdir(place.parent):
            if name.startswith(start) and LEFTOVER.fullmatch(name):
                remove_if_left(place.with_name(name))


def remove_if_left(path: Path) -> None:
    """Remove a temporary file unless somebody is writing to it, or it cannot be removed."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR)
        try:
            if _lock(handle, wait=False):
                os.unlink(path)
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool = True) -> bool:
    """Lock a file or a folder until it is closed; False if somebody else has it. A file system
    without locks gives one to whoever waits, and none to others."""
    if locks is None:
        return True
    try:
        locks.flock(handle, locks.LOCK_EX | (0 if wait else locks.LOCK_NB))
    except OSError:
        return wait
    return True


@contextmanager
def locked_folder(folder: Path) -> Generator[None]:
    """One writer of a folder at a time; others wait."""
    if locks is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)
