"""The folder of a `Recourse`: a file for each bank, and `recourse.json`, which names them and is
written last.

A bank's file is named by its digest. So while a folder is saved to again it has the banks of both,
and `recourse.json` says which ones count: whoever looks finds the old Recourse or the new one,
whatever stops the writer. Nothing else may be in the folder, and nothing else is ever removed.
"""

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from holdfast._core.files import (
    error_names,
    locked_folder,
    read_bytes,
    remove_if_left,
    sync_folder,
    write_whole,
)
from holdfast._core.seal import Content, sealed, unsealed
from holdfast._core.version import version
from holdfast.auditing.likeness import Likeness
from holdfast.errors import FileError, SettingError
from holdfast.models.base import Model
from holdfast.models.formats.limits import parse_json
from holdfast.plans.trained import StoredSplit, TrainedBanks
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.split import BankSplit
from holdfast.retraining.store import load_bank, packed, write_packed

FILE = "recourse.json"
FORMAT = 1
IN_USE = "in use"  # what a file calls the model that the others are retrained from
NEEDED = ("guide", "audit")  # parts without which there are no plans
BANK = re.compile(r"(guide|calibration|audit)-[0-9a-f]{16}\.bank")
LEFTOVER = re.compile(rf"\.(recourse\.json|{BANK.pattern})\.[0-9a-f]{{8}}\.part")
MOST_BYTES = 1 << 24  # of recourse.json


# ---- writing


def check_place(folder: str | Path) -> Path:
    """The folder itself; an error if a Recourse cannot be saved there without harm to what is
    there."""
    path = Path(folder)
    start = f"cannot save a Recourse to {str(folder)!r}"
    fix = "name a folder that is new, or empty, or has a Recourse"
    with error_names(folder):
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            return path
        except ValueError as error:  # a NUL
            raise FileError(f"{start}: {error}") from None
        if stat.S_ISLNK(there.st_mode):
            raise FileError(f"{start}: it is a link; name the folder that it points to")
        if not stat.S_ISDIR(there.st_mode):
            raise FileError(f"{start}: it is a file; {fix}")
        if any(path.samefile(one) for one in (Path.cwd(), *Path.cwd().parents)):
            raise FileError(f"{start}: it is the working directory, or a folder above it; {fix}")
        strange = sorted(entry.name for entry in os.scandir(path) if not _is_ours(entry))
    if strange:
        raise FileError(f"{start}: {strange[0]!r} lies there, which is of no Recourse; {fix}")
    return path


def _is_ours(entry: "os.DirEntry[str]") -> bool:
    """Is it a file that a Recourse has written?"""
    if not entry.is_file(follow_symlinks=False):
        return False
    if entry.name != FILE:
        return bool(BANK.fullmatch(entry.name) or LEFTOVER.fullmatch(entry.name))
    try:
        content: Any = json.loads(read_bytes(entry.path, MOST_BYTES))
    except (FileError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and cast(Content, content).get("file") == "recourse"


def save(
    folder: str | Path, model: Model, trained: TrainedBanks, level: Mapping[str, float]
) -> Path:
    """Write the model in use and the retrained ones, and what is known of them.

    Args:
        level: what else `load` is to give back, as numbers by name.
    """
    path = check_place(folder)
    parts = {name: part for name, part in trained.split._asdict().items() if len(part)}
    if any(name not in parts for name in NEEDED):
        raise SettingError("a Recourse without models that guide and audit cannot be saved")
    # read together, at once
    parts["guide"] = ModelBank.of(model, family=IN_USE).join(parts["guide"])
    banks = {name: packed(part) for name, part in parts.items()}
    digests = {name: content["digest"] for name, (content, _) in banks.items()}
    facts = {"holdfast": version(), **level, **facts_of(trained), "banks": digests}
    text = json.dumps(sealed("recourse", FORMAT, facts), indent=1) + "\n"
    is_new = not path.exists()
    with error_names(folder):
        path.mkdir(parents=True, exist_ok=True)
        with locked_folder(path):
            check_place(path)
            try:
                for name, bank in banks.items():
                    write_packed(bank, path / file_of(name, digests[name]))
                write_whole(path / FILE, text.encode())
            except BaseException:
                with suppress(OSError, FileError):
                    _sweep(path, _named_in(path))
                    if is_new:
                        path.rmdir()
                raise
            _sweep(path, {file_of(name, digest) for name, digest in digests.items()})
    return path


def facts_of(trained: TrainedBanks) -> Content:
    """What is known of the retrained models, as plain values."""
    return {
        "kind": trained.kind,
        "counts": dict(trained.counts),
        "spread": trained.spread,
        "from_rows": trained.from_rows,
        "likeness": None if trained.likeness is None else trained.likeness.to_dict(),
        "warnings": list(trained.warnings),
    }


def file_of(name: str, digest: str) -> str:
    """The file of a bank."""
    return f"{name}-{digest[:16]}.bank"


def _named_in(path: Path) -> set[str]:
    """The banks of the Recourse that is there; none if there is no Recourse."""
    if not (path / FILE).exists():
        return set()
    banks = _content(path, _read(path))["banks"]
    return {file_of(name, digest) for name, digest in banks.items()}


def _sweep(path: Path, kept: Iterable[str]) -> None:
    """Remove other banks, and what writers left that were killed."""
    for name in os.listdir(path):
        if BANK.fullmatch(name) and name not in kept:
            os.unlink(path / name)
        elif LEFTOVER.fullmatch(name):
            remove_if_left(path / name)
    sync_folder(path)


# ---- reading


def load(folder: str | Path) -> tuple[Model, TrainedBanks, Content]:
    """The model in use, the retrained ones, and whatever else `save` was given, as it is."""
    path = Path(folder)
    data = _read(path)
    while True:
        try:
            return _made(path, _content(path, data))
        except FileError:
            again = _read(path)
            if again == data:
                raise
            data = again  # somebody saved there in the meantime


def _read(path: Path) -> bytes:
    """`recourse.json` as it is."""
    try:
        return read_bytes(path / FILE, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise FileError(f"no Recourse at {str(path)!r}: {FILE} is missing") from None
    except OSError as error:
        raise FileError(f"cannot read {str(path / FILE)!r}: {error.strerror or error}") from None


def _content(path: Path, data: bytes) -> Content:
    """What `recourse.json` says."""
    try:
        return unsealed("recourse", FORMAT, parse_json(data, "the file", nan=True))
    except FileError as error:
        raise FileError(f"{str(path / FILE)!r} is damaged: {error}") from None


def _made(path: Path, content: Content) -> tuple[Model, TrainedBanks, Content]:
    try:
        banks = {name: str(content["banks"][name]) for name in content["banks"]}
        trained = _facts(content)
        _check_level(content)
    except Exception as error:  # the file may say anything
        what = f"{type(error).__name__}: {error}"
        raise FileError(f"{str(path / FILE)!r} is damaged ({what})") from None
    files = {name: path / file_of(name, digest) for name, digest in banks.items()}
    missing = [name for name in NEEDED if name not in files]
    missing += [name for name, file in files.items() if not file.is_file()]
    if missing:
        raise FileError(f"{str(path)!r} has no part {missing[0]!r}")
    both = load_bank(files["guide"], digest=banks["guide"])
    if len(both) <= 1:
        raise FileError(f"{str(files['guide'])!r} has no models that guide")
    split = StoredSplit(both[1:], files, banks)
    return both.model(0), TrainedBanks(split, **trained), content


def _facts(content: Content) -> dict[str, Any]:
    """What is known of the retrained models; an error of any kind where it cannot be."""
    counts = {str(name): int(count) for name, count in content["counts"].items()}
    if set(counts) != set(BankSplit._fields) or min(counts.values()) < 0:
        raise ValueError(f"counts of models are {counts}")
    if content["kind"] not in ("stretch", "fresh", "retrain"):
        raise ValueError(f"there is no family {content['kind']!r}")
    spread = float(content["spread"])
    from_rows = float(content["from_rows"])
    if not (1 <= spread < 1e6 and 0 <= from_rows <= 1):
        raise ValueError(f"judges lie {spread} times as far, {from_rows} of it by their rows")
    known = content["likeness"]
    return {
        "kind": content["kind"],
        "counts": counts,
        "spread": spread,
        "from_rows": from_rows,
        "likeness": None if known is None else Likeness.from_dict(known),
        "warnings": tuple(str(text) for text in content["warnings"]),
    }


def _check_level(content: Content) -> None:
    """An error of any kind unless hold, confidence and seed are numbers that can be."""
    for name in ("hold", "confidence"):
        if type(content[name]) not in (int, float) or not 0 < content[name] <= 1:
            raise ValueError(f"{name} is {content[name]!r:.40}")
    if type(content["seed"]) is not int:
        raise ValueError(f"seed is {content['seed']!r:.40}")
