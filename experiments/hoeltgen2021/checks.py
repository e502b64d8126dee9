"""What every answer of a greedy search must satisfy, counted pair by pair: one violation makes a
run an error.

    |x' - x| <= p delta          p: steps per pixel, delta: size of a step
    0 <= x' <= 1
    x' - b = j delta             for an integer j and b one of x, 0, 1, wherever x' differs from x
    L0 <= n q                    n: iterations, q: pixels per step
    sum ceil(|x' - x| / delta) <= n q
    conf(x') >= gamma            if and only if there is an answer; nothing changes where
                                 conf(x) >= gamma already

And for a sample of the pairs: one iteration earlier conf is below gamma; and the answer has the
same bits when the pair is searched alone, in a batch of another size, without compaction, and
without the shortcut.
"""

import copy
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import holdfast as hf
from experiments.parts import Arrays

Array = NDArray[Any]
# of a value, and of a number of steps
NOISE = 1e-6
CLOSE = 1e-4
Counts = dict[str, int]


def promises(
    method: hf.images.GreedyPixels, model: hf.images.ImageModel, x: Tensor, cell: Arrays
) -> Counts:
    """Violations among answers, promise by promise.

    Args:
        x: (n, c, h, w) the images of the pairs.
        cell: `x_cf` (n, c, h, w), `target`, `codes` and `iterations` (n,), and whether the caller's
            images were `touched`.
    """
    before = np.asarray(x.numpy(), np.float64).reshape(len(x), -1)
    after = np.asarray(cell["x_cf"], np.float64).reshape(len(x), -1)
    wanted = torch.as_tensor(cell["target"])[:, None]
    scores = model.scores(torch.as_tensor(cell["x_cf"]).nan_to_num().clamp(0, 1))
    conf = scores.double().softmax(1).gather(1, wanted).squeeze(1).numpy()
    steps = cell["iterations"] * method.pixels
    change = np.abs(after - before)
    most = method.min_probability or 0.5
    met = cell["codes"] != hf.Status.NOT_FOUND
    moved = (change > 0) & (cell["codes"] == hf.Status.ALREADY_MET)[:, None]
    largest = np.inf if method.limit is None else method.limit * method.delta
    off = np.minimum.reduce([_off(after - base, method.delta) for base in (before, 0.0, 1.0)])
    broken = {
        "limit per pixel": change > largest + NOISE,
        "bounds": ~((after >= 0) & (after <= 1)),
        "multiples of delta": (change > 0) & (off > CLOSE),
        "L0 at most iterations": (change > 0).sum(1) > steps,
        "steps at most iterations": np.ceil(change / method.delta - CLOSE).sum(1) > steps,
        "met where found": met & (conf < most - NOISE),
        "not met where not found": ~met & (conf > most + NOISE),
        "nothing to do, nothing done": moved,
        "caller's images untouched": cell["touched"],
    }
    return {name: _pairs(where) for name, where in broken.items()}


def _pairs(where: Array) -> int:
    """How many pairs a violation (n,) or (n, pixels) concerns."""
    where = np.atleast_1d(where)
    return int(where.reshape(len(where), -1).any(1).sum())


def _off(value: Array, delta: float) -> Array:
    """How far from an integer number of steps."""
    return np.abs(value / delta - np.round(value / delta))


# ---- the same pairs in other company


def again(
    method: hf.images.ImageExplainer,
    model: hf.images.ImageModel,
    x: Tensor,
    cell: Arrays,
    sample: Array,
) -> tuple[Counts, Array]:
    """Pairs of a sample whose answer differs in other circumstances, and the seconds each took
    alone.

    Args:
        sample: (m,) numbers of the pairs.
    """
    images = x[sample]
    wanted = cell["target"][sample]
    names = np.array(model.classes)[wanted]

    def differs(found: Any, at: Array) -> Array:
        same = (found.x_cf.numpy() == cell["x_cf"][at]).reshape(len(at), -1).all(1)
        return ~(same & (found.iterations == cell["iterations"][at]))

    took = np.zeros(len(sample))
    alone = 0
    for i in range(len(sample)):
        start = time.process_time()
        found = method.explain(model, images[i : i + 1], names[i : i + 1])
        took[i] = time.process_time() - start
        alone += int(differs(found, sample[i : i + 1]).sum())
    counts = {"alone": alone}
    for what, settings, batch_size in [
        ("another chunk", {}, max(2, len(sample) // 2)),
        *(
            [
                ("without compaction", {"compact": False}, 128),
                ("without the shortcut", {"shortcut": False}, 128),
            ]
            if isinstance(method, hf.images.GreedyPixels)
            else []
        ),
    ]:
        other = copy.copy(method).set_params(**settings)
        counts[what] = int(
            differs(other.explain(model, images, names, batch_size=batch_size), sample).sum()
        )
    if isinstance(method, hf.images.GreedyPixels):
        counts["not met one iteration earlier"] = _early(
            method, model, images, names, cell["iterations"][sample]
        )
    return counts, took


def _early(
    method: hf.images.GreedyPixels,
    model: hf.images.ImageModel,
    x: Tensor,
    names: Array,
    iterations: Array,
) -> int:
    """Pairs already met one iteration before the last."""
    count = 0
    for i in np.flatnonzero((iterations > 0) & (iterations < method.max_iter)):
        shorter = copy.copy(method).set_params(max_iter=int(iterations[i]) - 1)
        count += int(shorter.explain(model, x[i : i + 1], names[i : i + 1]).found.sum())
    return count


def kept(counts: dict[str, Counts]) -> None:
    """Raise an error if a promise was broken.

    Args:
        counts: violations by search, then by promise.
    """
    broken = [
        f"{what}: {name} ({n})" for what, each in counts.items() for name, n in each.items() if n
    ]
    if broken:
        raise hf.HoldfastError(
            f"promises of the search were broken, pairs in brackets: {'; '.join(broken)}"
        )
