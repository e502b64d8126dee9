"""Methods as generators of counterfactuals inside training: which of their settings count there.

A method is known by its name, as `holdfast.train` is below `holdfast.search` and cannot import it. Methods with terms
of their own that the search inside training does not have are refused rather than read as something else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from holdfast.distances import distance_of, l1
from holdfast.errors import SettingError, listed
from holdfast.methods._autoencoder import TableAutoencoder, autoencoder
from holdfast.schema.schema import Schema
from holdfast.training.counterfactual.domain import Domain
from holdfast.training.counterfactual.objective import Terms


@dataclass(frozen=True, eq=False)
class Tutor:
    """What training takes from a method."""

    terms: Terms
    steps: int = 30
    omniscient: bool = False
    method: Any = None

    @classmethod
    def of(cls, method: Any) -> "Tutor":
        """Read a method; None is ECCCo with the settings of the paper."""
        if method is None:
            return cls(Terms())
        kinds = [kind.__name__ for kind in type(method).__mro__]
        read = next((_READERS[kind] for kind in kinds if kind in _READERS), None)
        if read is None:
            raise SettingError(f"a {kinds[0]} cannot be used inside training; there are {listed(_READERS)}")
        return read(method)

    def codes(self, x: Tensor, schema: Schema, domain: Domain, progress: bool = False) -> TableAutoencoder | None:
        """The autoencoder to search in, trained on rows x unless the method has one."""
        how = self.method
        if how is None or not hasattr(how, "autoencoder"):
            return None
        if domain.binds:
            raise SettingError(
                "REVISE moves all columns at once, so it cannot keep those that may not change; take ECCCo, or a "
                "schema in which everything may"
            )
        return how.autoencoder or autoencoder(
            x, schema, kind=how.kind, hidden=how.hidden, latent=how.latent, epochs=how.epochs, beta=how.beta,
            seed=how.seed, progress=progress,
        )  # fmt: skip


def _eccco(how: Any) -> Tutor:
    if how.conformal:
        raise SettingError("there is no conformal term inside training; set conformal=0")
    return Tutor(Terms(lam=how.lam, energy=how.energy, tau=how.tau, lr=how.lr), how.steps, method=how)


def _descent(how: Any) -> Tutor:
    if (how.loss, distance_of(how.norm), how.optimizer, how.relax) != ("cross_entropy", l1, "sgd", "round"):
        raise SettingError("inside training a Descent has cross-entropy, l1 and plain steps; take Descent.generic(...)")
    return Tutor(Terms(lam=how.lam, energy=0.0, lr=how.lr), how.steps, method=how)


def _revise(how: Any) -> Tutor:
    if distance_of(how.norm) != l1:
        raise SettingError(f"inside training REVISE has the l1 distance; set norm=1, not {how.norm}")
    return Tutor(Terms(lam=how.lam, energy=0.0, lr=how.lr), how.steps, method=how)


def _omniscient(how: Any) -> Tutor:
    return Tutor(Terms(), omniscient=True, method=how)


_READERS: dict[str, Callable[[Any], Tutor]] = {
    "ECCCo": _eccco,
    "Descent": _descent,
    "REVISE": _revise,
    "Omniscient": _omniscient,
}
