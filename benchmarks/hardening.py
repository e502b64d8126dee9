"""How fast adversarial training of many networks and the random searches are, as ratios measured in
one run.

    HOLDFAST_DATA=... python -m benchmarks.hardening [OUT.json]

Training: Adult as recourse benchmarks have it (12 columns between 0 and 1), networks 12-24-2, ten
steps of PGD, batches of 256 rows; eight epsilons and five seeds as one stack against one network
with epsilon 0.1.

Searches: 1,000 rows, one thread. The unit is what they cannot do without: every candidate they
weighed goes through decoder and model as plain PyTorch modules, in the same portions. Medians of
repeats that take turns, wall clock.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

import holdfast as hf
from benchmarks.engine import out_file, write
from benchmarks.shift import asked, medians
from experiments.data import Split
from experiments.krishna2024.setup import hardened, latent_space, prepare
from holdfast.methods._candidates import Candidates
from holdfast.methods._latent import LatentMethod
from holdfast.training.adversarial import EPSILONS

EPOCHS = 2
SEEDS = 5
ROWS = 1000
LIMITS = {
    "40 hardened networks as one stack / one alone": 8,
    "C-CHVAE / bare decoder and model": 1.5,
    "C-CHVAE with the decoder of the CARLA benchmark / bare decoder and model": 1.5,
    "Growing Spheres / bare model": 1.5,
    "Growing Spheres as in the CARLA benchmark / bare model": 1.5,
    "C-CHVAE, categories and fixed columns / bare decoder and model": 1.5,
    "Growing Spheres, categories and fixed columns / bare model": 1.5,
}


def training(task: Split) -> dict[str, float]:
    hidden = (2 * task.width,)
    took = medians(
        {
            "alone": lambda: hardened(task, hidden, EPOCHS, 1, 0, epsilon=[0.1]),
            "stack": lambda: hardened(task, hidden, EPOCHS, SEEDS, 0, epsilon=EPSILONS),
        },
        5,
    )
    return {
        "one hardened network, an epoch (ms)": took["alone"] / EPOCHS * 1e3,
        "40 hardened networks as one stack / one alone": took["stack"] / took["alone"],
    }


@contextmanager
def portions() -> Iterator[list[int]]:
    """How many candidates are weighed at a time."""
    sizes = list[int]()
    met = Candidates.met

    def counted(self: Candidates, z: Tensor, people: slice) -> Tensor:
        sizes.append(z[0].numel())
        return met(self, z, people)

    with patch.object(Candidates, "met", counted):
        yield sizes


def against_bare(method: hf.Explainer, model: hf.Model, x: Tensor) -> tuple[float, float]:
    """(ratio, candidates for each row)"""
    net = method.autoencoder_.decoder if isinstance(method, LatentMethod) else None
    with model.eval_mode(), torch.inference_mode():
        problem = asked(model, x)
        with portions() as sizes:
            method.search(problem)
        rows = {n: torch.rand(n, x.shape[1]) for n in set(sizes)}
        codes = {n: torch.randn(n, net[0].in_features) for n in rows} if net else {}

        def bare() -> None:
            for n in sizes:
                if net:
                    net(codes[n])
                model.module(rows[n])

        calls: dict[str, Callable[[], object]] = {
            "bare": bare,
            "search": lambda: method.search(problem),
        }
        took = medians(calls, 5)
    return took["search"] / took["bare"], sum(sizes) / len(x)


def searches(task: Split) -> dict[str, float]:
    model = hardened(task, (2 * task.width,), 5, 1, 0, epsilon=[0.0]).model(0.0)
    x = task.schema.encode(task.test_X)[:ROWS]
    wide = hf.CCHVAE(hidden=(512, 256), epochs=3).fit(model, task.X.iloc[:5000])
    methods: dict[str, hf.Explainer] = {
        "C-CHVAE / bare decoder and model": hf.CCHVAE(autoencoder=latent_space(task, 0)).fit(
            model, task.X
        ),
        "C-CHVAE with the decoder of the CARLA benchmark / bare decoder and model": wide,
        "Growing Spheres / bare model": hf.GrowingSpheres(),
        "Growing Spheres as in the CARLA benchmark / bare model": hf.GrowingSpheres.carla(rings=50),
    }
    out = dict[str, float]()
    for name, method in methods.items():
        out[name], each = against_bare(method, model, x)
        out[f"{name.split(' / ')[0]}: candidates for each row"] = each
    return out


def mixed() -> dict[str, float]:
    """The same on all columns of Adult, with categories, steps, and columns that nobody can change.

    The limits are for networks as wide as the paper has them. Making a candidate reachable costs
    the same whatever the network, so that beside a small one it weighs more: that of 32 hidden
    units is shown without a limit.
    """
    data = hf.datasets.load("adult")
    out = dict[str, float]()
    schema = hf.Schema.infer(data.X, fixed=["age", "sex", "race"])
    x = schema.encode(data.X.iloc[:ROWS])
    for hidden, more in ((2 * schema.width, ""), (32, ", 32 hidden units")):
        recipe = hf.Recipe(hidden=(hidden,), epochs=2)
        model = hf.train_adversarial(recipe, data.X, data.y, schema, epsilon=[0.0]).model(0.0)
        method = hf.CCHVAE(hidden=(64, 32), epochs=5, rings=50).fit(model, data.X.iloc[:10_000])
        name = f"categories and fixed columns{more}"
        out[f"C-CHVAE, {name} / bare decoder and model"] = against_bare(method, model, x)[0]
        out[f"Growing Spheres, {name} / bare model"] = against_bare(hf.GrowingSpheres(), model, x)[
            0
        ]
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    adult = prepare("adult")
    figures = training(adult) | searches(adult) | mixed()
    write(figures, LIMITS, out_file(__file__))
