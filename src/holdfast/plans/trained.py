"""Retrained models in three parts, what is known of them, and the folder that keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast._core.lock import OwnLock
from holdfast.auditing.likeness import Likeness
from holdfast.errors import FileError
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.split import BankSplit
from holdfast.retraining.store import load_bank


class StoredSplit:
    """The parts of a folder; each is read when it is first asked for.

    Args:
        guide: the models that guide, which are in one file with the model in use.
        files: where the other parts are, by name.
        digests: of what is in these files.
    """

    def __init__(
        self, guide: ModelBank, files: Mapping[str, Path], digests: Mapping[str, str]
    ) -> None:
        self.guide = guide
        self.files = files
        self.digests = digests
        self._parts = {"guide": guide}
        self._lock = OwnLock()

    @property
    def calibration(self) -> ModelBank:
        """The models that choose."""
        return self._part("calibration")

    @property
    def audit(self) -> ModelBank:
        """The models that audit."""
        return self._part("audit")

    def _part(self, name: str) -> ModelBank:
        """A part, which is read once, however many threads ask for it."""
        with self._lock:
            if name not in self._parts:
                self._parts[name] = self._read(name)
            return self._parts[name]

    def _read(self, name: str) -> ModelBank:
        if name not in self.files:
            return self.guide[:0]
        file = self.files[name]
        if not file.is_file():
            raise FileError(
                f"{str(file)!r} is gone: another Recourse was saved there; load the folder again"
            )
        bank = load_bank(file, digest=self.digests[name])
        for part, other in self._parts.items():
            if other.members() & bank.members():
                raise FileError(
                    f"{str(file)!r} has models that are among those of part {part!r}: they cannot "
                    "judge what they had a part in"
                )
        return bank


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
