"""VAE-CF: a variational autoencoder that is given the wanted class and returns an answer."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.methods.amortized._generator_loop import Variational, sigmoids, with_wish
from holdfast.methods.amortized.cf_model import Parametric
from holdfast.problem import SearchProblem


@dataclass(eq=False, repr=False)
class VAECF(Parametric):
    """A variational autoencoder whose decoder makes answers; one draw for each row.

    Args:
        hidden, latent: widths of the encoders' layers, and latent numbers; the decoder has them in reverse.
        samples: draws for each row while training.
        reg, margin: weight of validity, and by how much the wanted class has to lead, in logits.
        epochs, batch_size, lr: of the training, with Adam.
        reachable: train on answers as they would be handed in, with all bounds and rules; pays where these are tight.
        seed: weights, order and noise of the training come from it; the noise of answers from the seed of `explain`.
        shift, schedule: what it is trained against, see `holdfast.methods.amortized.robustify`.
    """

    title: ClassVar[str] = "one draw from a variational autoencoder trained to answer for the model"
    paper: ClassVar[str] = "Mahajan et al. 2019; Guo et al. 2023 (VAE-CF)"
    when: ClassVar[str] = "many rows must be answered fast, by rows that look like data"
    cost: ClassVar[str] = "one pass of a generator per row, after training it for epochs passes over the data"
    advice: ClassVar[str] = (
        "train with reachable=True, a larger reg or more epochs, or ask another method about these rows"
    )

    hidden: tuple[int, ...] = (20, 16, 14, 12)
    latent: int = 5
    samples: int = 50
    reg: float = 0.2
    margin: float = 1.0

    def kind(self) -> Variational:
        return Variational(**self._settings(Variational))

    def propose(self, problem: SearchProblem, t: Tensor) -> Tensor:
        (mean, variance, decoder), told = self.networks_.layers, self.networks_.told
        seen = with_wish(problem.x, t, told)
        m = mean(seen)
        noise = problem.rng.normal(m.shape[1], dtype=m.dtype)
        z = m + (0.5 + torch.sigmoid(variance(seen))).sqrt() * noise
        return sigmoids(decoder(with_wish(z, t, told)), problem.feasible.encoding)
