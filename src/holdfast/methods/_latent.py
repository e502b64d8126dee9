"""What methods that search in the latent space of an autoencoder share."""

from dataclasses import dataclass, fields
from typing import ClassVar

from torch import Tensor

from holdfast._core.types import Outcomes, Rows
from holdfast.errors import SettingError
from holdfast.explainer import Explainer
from holdfast.methods._autoencoder import Kind, TableAutoencoder
from holdfast.methods._autoencoder_training import autoencoder
from holdfast.models.base import Model
from holdfast.schema.schema import Schema


@dataclass(eq=False, repr=False, kw_only=True)
class LatentMethod(Explainer):
    """A method that searches in the latent space of an autoencoder of the data: its settings, and
    its training.

    Args:
        kind: "autoencoder", or "vae".
        hidden: widths of the autoencoder's layers before the latent one.
        latent, epochs, seed: its latent numbers, longest training and seed.
        beta: weight of a VAE's divergence; the smaller, the closer rows are to what their codes
            decode to.
        autoencoder: a ready `TableAutoencoder` (see `holdfast.methods._autoencoder`) in place of
            training one.
    """

    regression = True
    needs_grad = False
    needs_data = True
    conditioned: ClassVar[bool] = True  # does the decoder see the columns that cannot change?

    kind: Kind = "vae"
    hidden: tuple[int, ...] = (512, 256)  # this and the latent numbers as in the CARLA benchmark
    latent: int = 8
    epochs: int = 200
    beta: float = 0.05
    seed: int = 0
    autoencoder: TableAutoencoder | None = None

    def __repr__(self) -> str:
        """As for every method, but the settings it adds come first: stored answers are known by
        them."""
        shared = [f.name for f in fields(LatentMethod)]
        ordered = sorted(fields(self), key=lambda f: f.name in shared)
        changed = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in ordered
            if getattr(self, f.name) != f.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def check(self, model: Model) -> None:
        columns = self.autoencoder_.width
        width = model.schema.width
        if columns != width:
            raise SettingError(
                f"the autoencoder is for rows of {columns} columns, the model takes {width}"
            )

    def learn(self, model: Model, X: Rows, y: Outcomes | None) -> None:
        """Train the autoencoder, unless one was given."""
        given = model.schema.encoding().fixed.nonzero().squeeze(1) if self.conditioned else None
        self.autoencoder_ = self.ready_autoencoder(X, model.schema, given)

    def ready_autoencoder(
        self, X: Rows, schema: Schema, given: Tensor | None = None, progress: bool = False
    ) -> TableAutoencoder:
        """The autoencoder of the settings, or one trained on rows."""
        return self.autoencoder or autoencoder(
            X,
            schema,
            kind=self.kind,
            hidden=self.hidden,
            latent=self.latent,
            epochs=self.epochs,
            beta=self.beta,
            seed=self.seed,
            given=given,
            progress=progress,
        )
