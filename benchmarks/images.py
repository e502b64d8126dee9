"""What counterfactual images cost, as ratios measured in one run: one process, one thread, CPU
time.

    HOLDFAST_DATA=... python -m benchmarks.images [OUT.json [NETWORK.safetensors]]

All on one spectral network, 16 channels wide, of MNIST: the given one, or one that is trained here
for a short time. DeDUCE turns the first 100 test images to every other class, 900 pairs; its unit
is the bare PyTorch passes forward and back (gradient by the images alone) that it makes, in batches
of the same size, measured before and after it.

    one by one    some of the pairs, each alone; scaled by iterations to the same work
    VLK           all of its 2 x 1000 steps, on some of the pairs at once, beside DeDUCE on the same
                  pairs at once
    REVISE        the same, by Adam with the budget of the reproduction of hoeltgen2021. Plain
                  descent with the paper's step of 1e-5 would take hours: its time is extrapolated
                  from some steps to as many as the failures that the paper reports take alone,
                  26.8 % of 50,000 for each pair
"""

import sys
import time

import numpy as np
import torch
from torch import Tensor

from benchmarks.engine import bare_pass, out_file, seconds, write
from experiments.hoeltgen2021.reported import STEP_LIMITS, TABLE_1
from experiments.hoeltgen2021.setup import SETTINGS, prepare
from holdfast.images.autoencoders import ConvAutoencoder, ConvVAE
from holdfast.images.classifier import SpectralResNet
from holdfast.images.deduce import DeDUCE
from holdfast.images.model import ImageModel
from holdfast.images.prototype import Prototype
from holdfast.images.revise import REVISE

# pairs at once; bare passes before and after
CHUNK = 128
BARE = 20
# pairs one by one; images whose pairs the slow methods get
ALONE = 15
SAMPLE = 2
LEARN = 20_000  # images that a network is trained on here, if none is given
PLAIN_STEPS = 100  # of plain descent that are measured
LIMITS = {
    "DeDUCE / the bare passes it makes": 1.4,
    "DeDUCE, 900 pairs at once / one by one": 1 / 5,
    "a counterfactual by DeDUCE / by VLK": 1 / 20,
    "a counterfactual by DeDUCE / by REVISE, plain descent (extrapolated)": 1 / 10,
}


def network(path: str | None) -> ImageModel:
    if path:
        return ImageModel.load(path)
    task = prepare("mnist")
    options = SETTINGS["mnist"].spectral | {"epochs": 2}
    return SpectralResNet(**options).fit(task.train[:LEARN], task.y[:LEARN]).model_


def at_once(deduce: DeDUCE, model: ImageModel, x: Tensor, y: np.ndarray) -> dict[str, float]:
    """The 900 pairs, between bare passes; then some of them alone."""
    rows = torch.cat([x, x])[:CHUNK]
    wanted = torch.arange(CHUNK) % 10
    bare = list[float]()

    def passes() -> None:
        with model.eval_mode(), torch.enable_grad():
            for _ in range(BARE):
                bare.append(seconds(lambda: bare_pass(model.module, rows, wanted)))

    deduce.explain(model, x[:1], "all", labels=y[:1])  # what is only slow at first
    passes()
    start = time.process_time()
    found = deduce.explain(model, x, "all", labels=y, batch_size=CHUNK)
    took = time.process_time() - start
    passes()
    # unit: of one image
    unit = float(np.median(bare)) / CHUNK
    steps = int(found.iterations.sum())
    alone = 0.0
    own_steps = 0
    for i in np.linspace(0, len(found) - 1, ALONE).astype(int):
        start = time.process_time()
        one = deduce.explain(model, found.x[i : i + 1], found.target[i : i + 1])
        alone += time.process_time() - start
        own_steps += int(one.iterations[0])
        if not torch.equal(one.x_cf[0], found.x_cf[i]):
            raise SystemExit(f"pair {i} has another answer alone")
    return {
        "DeDUCE / the bare passes it makes": took / (found.passes * unit),
        "DeDUCE / a bare pass for every iteration": took / (steps * unit),
        "DeDUCE, 900 pairs at once / one by one": (took / steps) / (alone / own_steps),
        "DeDUCE: seconds of a counterfactual, 900 at once": took / len(found),
        "DeDUCE: iterations": steps / len(found),
        "DeDUCE: passes": found.passes / len(found),
        "a bare pass, of one image (ms)": 1e3 * unit,
    }


def beside_others(deduce: DeDUCE, model: ImageModel, x: Tensor, y: np.ndarray) -> dict[str, float]:
    """Seconds of a counterfactual, for the same pairs at once."""
    task = prepare("mnist")
    setting = SETTINGS["mnist"]
    learn = task.train[:LEARN]
    coder = ConvAutoencoder(epochs=1).fit(learn)
    vae = ConvVAE(epochs=2).fit(learn)
    vlk = Prototype(autoencoder=coder, **setting.vlk).fit(model, learn[:2000], task.y[:2000])
    budget = REVISE(vae=vae, **setting.revise).fit(model, learn[:1])
    plain = REVISE(vae=vae, lam=1.0, step=1e-5, max_iter=PLAIN_STEPS).fit(model, learn[:1])
    took = dict[str, float]()
    for name, method in (("DeDUCE", deduce), ("VLK", vlk), ("REVISE", budget), ("plain", plain)):
        start = time.process_time()
        found = method.explain(model, x, "all", labels=y, batch_size=CHUNK)
        took[name] = (time.process_time() - start) / len(found)
    steps = TABLE_1["REVISE"]["failure %"][0] / 100 * STEP_LIMITS[1e-5]
    descent = took["plain"] / PLAIN_STEPS * steps
    return {
        "a counterfactual by DeDUCE / by VLK": took["DeDUCE"] / took["VLK"],
        "a counterfactual by DeDUCE / by REVISE, Adam": took["DeDUCE"] / took["REVISE"],
        "a counterfactual by DeDUCE / by REVISE, plain descent (extrapolated)": took["DeDUCE"]
        / descent,
        "DeDUCE: seconds of a counterfactual, same pairs": took["DeDUCE"],
        "VLK: seconds of a counterfactual": took["VLK"],
        "REVISE, Adam: seconds of a counterfactual": took["REVISE"],
        "REVISE, plain descent: seconds of a counterfactual (extrapolated)": descent,
    }


def main() -> None:
    torch.set_num_threads(1)
    task = prepare("mnist")
    model = network(sys.argv[2] if len(sys.argv) > 2 else None)
    deduce = DeDUCE().fit(model, task.train[:LEARN], task.y[:LEARN])
    x = task.test[:100]
    y = task.test_y[:100]
    found = {"accuracy of the network": model.accuracy(task.test[:2000], task.test_y[:2000])}
    found |= at_once(deduce, model, x, y) | beside_others(deduce, model, x[:SAMPLE], y[:SAMPLE])
    write(found, LIMITS, out_file(__file__))


if __name__ == "__main__":
    main()
