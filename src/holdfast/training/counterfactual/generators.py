"""Methods as generators of counterfactuals inside training: which of their settings count there.

Methods with terms that the search inside training lacks are refused rather than read as something
else.
"""

from dataclasses import dataclass

from torch import Tensor

from holdfast.distances import distance_of, l1
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods._autoencoder import TableAutoencoder
from holdfast.methods.descent import Descent
from holdfast.methods.eccco import ECCCo
from holdfast.methods.omniscient import Omniscient
from holdfast.methods.revise import REVISE
from holdfast.schema.schema import Schema
from holdfast.training.counterfactual.domain import Domain
from holdfast.training.counterfactual.objective import Variant


@dataclass(frozen=True, eq=False)
class GeneratorSettings:
    """What training takes from a method."""

    variant: Variant
    steps: int = 30
    method: Explainer | None = None

    @classmethod
    def of(cls, method: Explainer | None) -> "GeneratorSettings":
        """Read a method; None is ECCCo with the settings of the paper."""
        if method is None:
            return cls(Variant())
        if isinstance(method, Omniscient):
            return cls(Variant(), method=method)
        if isinstance(method, ECCCo):
            if method.conformal:
                raise SettingError("there is no conformal term inside training; set conformal=0")
            variant = Variant(lam=method.lam, energy=method.energy, tau=method.tau, lr=method.lr)
            return cls(variant, method.steps, method)
        # The search inside training is written for whole stacks (`search.py`), with one distance,
        # one loss and plain steps.
        if isinstance(method, Descent):
            usual = (method.loss, method.optimizer, method.relax) == (
                "cross_entropy",
                "sgd",
                "round",
            )
            usual = usual and distance_of(method.norm) == l1
            if not usual:
                raise SettingError(
                    "inside training a Descent has cross-entropy, l1 and plain steps; take "
                    "Descent.generic(...)"
                )
        elif isinstance(method, REVISE):
            if distance_of(method.norm) != l1:
                raise SettingError(
                    f"inside training REVISE has the l1 distance; set norm=1, not {method.norm}"
                )
        else:
            raise SettingError(
                f"a {type(method).__name__} cannot be used inside training; there are ECCCo, "
                "Descent, REVISE and Omniscient"
            )
        return cls(Variant(lam=method.lam, energy=0.0, lr=method.lr), method.steps, method)

    @property
    def omniscient(self) -> bool:
        """Are counterfactuals drawn rather than searched for?"""
        return isinstance(self.method, Omniscient)

    def autoencoder(
        self, x: Tensor, schema: Schema, domain: Domain, progress: bool = False
    ) -> TableAutoencoder | None:
        """The autoencoder to search in, trained on rows x unless the method has one."""
        if not isinstance(self.method, REVISE):
            return None
        if domain.binds:
            raise SettingError(
                "REVISE moves all columns at once, so it cannot keep those that may not change; "
                "take ECCCo, or a schema in which everything may"
            )
        return self.method.ready_autoencoder(x, schema, progress=progress)
