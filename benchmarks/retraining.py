"""How fast retraining, Stable Neighbor Search and the audit are, as ratios measured in one run.

    HOLDFAST_DATA=... python -m benchmarks.retraining [OUT.json]

One process, one thread, CPU time, medians of repeats that take turns. The task: HELOC, MLP
23-100-32-2, batches of 128 rows. The units are plain PyTorch on the same data: one model trained
alone with `torch.optim.Adam`, one forward and backward pass over the points of all lines, one
model's forward pass over all answers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import holdfast as hf
from benchmarks.engine import AnyModule, medians, out_file, write
from holdfast.nn.architecture import mlp

EPOCHS = 2
BATCH = 128
MODELS = 100
ROWS = 1000
STEPS = 200
POINTS = 10
LIMITS = {
    "100 models together / one alone": 15,
    "stable neighbors, Linear/ReLU network / bare passes": 0.7,
    "stable neighbors, any torch module / bare passes": 1.2,
    "audit of 1,000 answers on 200 models / 200 forward passes": 3,
}


@dataclass(eq=False, repr=False)
class Ready(hf.Explainer):
    """Answers that are there already, so that only what is done with them is timed.

    All rows are searched in one batch, which is filled up with copies of its last row to whole
    blocks of 16.
    """

    answers: Tensor | None = None

    def search(self, problem: hf.SearchProblem) -> Tensor:
        assert self.answers is not None
        filled = len(problem) - len(self.answers)
        return torch.cat([self.answers, self.answers[-1:].expand(filled, -1)])


def train_alone(x: Tensor, y: Tensor) -> nn.Module:
    """What one would write by hand."""
    net = mlp(x.shape[1], (100, 32), 2)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    return net


def bare_passes(net: nn.Module, x: Tensor) -> None:
    wanted = torch.ones(len(x), dtype=torch.int64)
    for _ in range(STEPS):
        z = x.detach().requires_grad_()
        torch.autograd.grad(nn.functional.cross_entropy(net(z), wanted, reduction="sum"), z)


def forward_passes(net: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        for _ in range(2 * MODELS):
            net(x)


def measure() -> dict[str, float]:
    data = hf.datasets.load("heloc")
    schema = data.schema
    x = schema.encode(data.X)
    y = torch.tensor((data.y == "Good").to_numpy(), dtype=torch.int64)
    recipe = hf.Recipe(hidden=(100, 32), epochs=EPOCHS, batch_size=BATCH)
    took = medians(
        {
            "alone": lambda: train_alone(x, y),
            "together": lambda: hf.ModelBank.retrain(
                recipe, data.X, data.y, schema, families={"seed": MODELS}, classes=["Bad", "Good"]
            ),
            "left out": lambda: hf.ModelBank.retrain(
                recipe,
                data.X,
                data.y,
                schema,
                families={"leave_one_out": MODELS},
                classes=["Bad", "Good"],
            ),
        },
        5,
    )
    box = hf.Schema.box(x.shape[1], 0, 1)
    model = hf.Recipe(hidden=(100, 32), epochs=10, batch_size=BATCH).fit(
        data.X, data.y, schema, classes=["Bad", "Good"]
    )
    net = model.module.requires_grad_(False)
    fast = hf.Model.of(net, box, classes=["Bad", "Good"])
    slow = hf.Model.of(AnyModule(net), box, classes=["Bad", "Good"])
    refused = x[net(x).argmax(1) == 0][:ROWS].clamp(0, 1)
    start = Ready(hf.MinCost(norm=2).explain(fast, refused, "Good").x_cf)
    search = hf.StableNeighborSearch(start=start, radius=0.5, steps=STEPS, path_points=POINTS)
    points = refused.repeat(POINTS, 1)
    moved = medians(
        {
            "passes": lambda: bare_passes(net, points),
            "fast": lambda: search.explain(fast, refused, "Good"),
            "slow": lambda: search.explain(slow, refused, "Good"),
        },
        5,
    )
    answers = hf.MinCost(norm=2).explain(
        model, data.X[(model.predict(data.X) == "Bad").to_numpy()][:ROWS], "Good"
    )
    bank = hf.ModelBank.retrain(
        hf.Recipe(hidden=(100, 32), epochs=1, batch_size=BATCH),
        data.X,
        data.y,
        schema,
        families={"seed": MODELS, "leave_one_out": MODELS},
        classes=["Bad", "Good"],
    )
    audited = medians(
        {
            "passes": lambda: forward_passes(net, answers.x_cf),
            "audit": lambda: hf.audit(answers, bank),
        }
    )
    epochs = MODELS * EPOCHS
    return {
        "one model alone (ms per epoch)": took["alone"] / EPOCHS * 1e3,
        "100 models together (ms per model and epoch)": took["together"] / epochs * 1e3,
        "100 models with a row left out (ms per model and epoch)": took["left out"] / epochs * 1e3,
        "100 models together / one alone": took["together"] / took["alone"],
        "100 models with a row left out / one alone": took["left out"] / took["alone"],
        "bare passes over 10,000 points (s)": moved["passes"],
        "stable neighbors, Linear/ReLU network / bare passes": moved["fast"] / moved["passes"],
        "stable neighbors, any torch module / bare passes": moved["slow"] / moved["passes"],
        "audit of 1,000 answers on 200 models (s)": audited["audit"],
        "audit of 1,000 answers on 200 models / 200 forward passes": audited["audit"]
        / audited["passes"],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    write(measure(), LIMITS, out_file(__file__))
