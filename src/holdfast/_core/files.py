"""Outputs are whole or absent: written beside their place, and put there when they are complete."""

import json
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import FileError


@contextmanager
def whole_folder(folder: Path) -> Generator[Path]:
    """A new folder to write to, which takes the place of `folder` at the end, or vanishes if
    something fails."""
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        old = temporary.with_name(f"{temporary.name}.old")
        if folder.exists():
            os.replace(folder, old)
        os.replace(temporary, folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is never seen half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def json_text(content: dict[str, Any], path: str | Path | None = None) -> str:
    """The content as JSON, written to a file where there is one to write to."""
    text = json.dumps(content, indent=1, ensure_ascii=False, default=plain_value)
    if path is not None:
        try:
            write_whole(Path(path), f"{text}\n".encode())
        except OSError as error:
            reason = error.strerror or error
            raise FileError(f"cannot write {str(path)!r}: {reason}") from None
    return text


def plain_value(value: Any) -> Any:
    """What JSON does not know, as a number or a string."""
    return value.item() if isinstance(value, np.generic) else str(value)
