"""Retrained models in three parts, what is known of them, and the folder that keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.auditing.likeness import Likeness
from holdfast.errors import FileError, SettingError
from holdfast.models.base import Model
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.split import BankSplit

IN_USE = "in use"  # what a file calls the model that the others are retrained from
NEEDED = ("guide", "audit")  # parts without which there are no plans


class StoredSplit:
    """The parts of a folder; each is read when it is first asked for.

    Args:
        guide: the models that guide, which are in one file with the model in use.
        files: where the other parts are, by name.
    """

    def __init__(self, guide: ModelBank, files: Mapping[str, Path]) -> None:
        self.guide = guide
        self.files = files

    @cached_property
    def calibration(self) -> ModelBank:
        """The models that choose."""
        return self._read("calibration")

    @cached_property
    def audit(self) -> ModelBank:
        """The models that audit."""
        return self._read("audit")

    def _read(self, name: str) -> ModelBank:
        return ModelBank.load(self.files[name]) if name in self.files else self.guide[:0]


@dataclass(frozen=True, eq=False, repr=False)
class TrainedBanks:
    """Retrained models that guide, choose and audit, as `Banks.train` makes them.

    Args:
        parts: the models.
        kind: the family of the judges: "stretch", "fresh" or "retrain".
        counts: how many models were asked for, by part.
        spread: how many times as far as bootstraps judges lie from the model in use.
        from_rows: the share of the variance of retrained models that comes from their rows.
        likeness: how near they are to the model in use; None: nobody has compared them.
        warnings: what the judges may not know of the rows, in sentences.
        notes: what was done, and how long it took.

    >>> import holdfast as hf
    >>> data = hf.datasets.overlapping(n=300)
    >>> recipe = hf.Recipe(hidden=(), epochs=10, lr=0.1)
    >>> model = recipe.fit(data.X, data.y, data.schema)
    >>> few = {"guide": 10, "calibration": 30, "audit": 30}
    >>> banks = hf.Banks(recipe=recipe, family="retrain", models=few)
    >>> trained = banks.train(model, data.X, data.y, hold=0.9)
    >>> [len(part) for part in trained.split], trained.likeness.alike
    ([10, 30, 30], True)
    """

    parts: BankSplit | StoredSplit
    kind: str
    counts: Mapping[str, int]
    spread: float = 1.0
    from_rows: float = 1.0
    likeness: Likeness | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def split(self) -> BankSplit:
        """All three parts."""
        return BankSplit(self.parts.guide, self.parts.calibration, self.parts.audit)

    def __repr__(self) -> str:
        asked = ", ".join(f"{name}: {count}" for name, count in self.counts.items())
        return f"TrainedBanks({self.kind}; {asked}; spread {self.spread:.3g})"

    def save(self, folder: Path, model: Model) -> dict[str, Any]:
        """Write the models, and the model in use, to files of a folder that is there; returns what
        else `load` needs."""
        parts = {name: part for name, part in self.split._asdict().items() if len(part)}
        if any(name not in parts for name in NEEDED):
            raise SettingError("a Recourse without models that guide and audit cannot be saved")
        # read together, at once
        parts["guide"] = ModelBank.of(model, family=IN_USE).join(parts["guide"])
        for name, part in parts.items():
            part.save(folder / f"{name}.bank")
        return {
            "kind": self.kind,
            "counts": dict(self.counts),
            "spread": self.spread,
            "from_rows": self.from_rows,
            "likeness": None if self.likeness is None else self.likeness.to_dict(),
            "warnings": list(self.warnings),
            "parts": list(parts),
        }

    @classmethod
    def load(cls, folder: Path, content: Mapping[str, Any]) -> "tuple[Model, TrainedBanks]":
        """The model in use and the retrained ones, from a folder and what `save` returned."""
        facts: dict[str, Any] = {
            "kind": str(content["kind"]),
            "counts": {str(name): int(count) for name, count in content["counts"].items()},
            "spread": float(content["spread"]),
            "from_rows": float(content["from_rows"]),
            "likeness": None if content["likeness"] is None else Likeness(**content["likeness"]),
            "warnings": tuple(str(text) for text in content["warnings"]),
        }
        names = [name for name in BankSplit._fields if name in content["parts"]]
        files = {name: folder / f"{name}.bank" for name in names}
        missing = [name for name in NEEDED if name not in files]
        missing += [name for name, file in files.items() if not file.is_file()]
        if missing:
            raise FileError(f"{str(folder)!r} has no part {missing[0]!r}")
        both = ModelBank.load(files["guide"])
        if len(both) <= 1:
            raise FileError(f"{str(files['guide'])!r} has no models that guide")
        return both.model(0), cls(StoredSplit(both[1:], files), **facts)
