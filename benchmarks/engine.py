"""How fast the engine is, as ratios measured in one run: one process, one thread, CPU time,
medians.

    HOLDFAST_DATA=... python -m benchmarks.engine [OUT.json]

All benchmarks are run like this, from the root of the repository, and write to
`benchmarks/results/` unless told where.

The unit is one bare PyTorch forward and backward pass (gradient by the rows only) over the same
rows. Repeats of the things compared are interleaved, so that a slow minute of the machine hits all
of them alike. The task: 1,000 HELOC rows that an MLP 23-100-32-2 refuses, `Descent` with Adam and
500 steps, every step of which is made.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import holdfast as hf
from holdfast.nn.architecture import mlp

RESULTS = Path(__file__).parent / "results"
REPEATS = 7
STEPS = 500
LIMITS = {
    "descent, Linear/ReLU network (units)": 500,
    "descent, any torch module (units)": 950,
    "one row / plain eager loop": 0.25,
    "1,000 rows / one row": 10,
    "cost per row, 100,000 / 10,000 rows": 1.15,
    "extra peak memory (MB)": 25,
    "import holdfast / import torch": 1.3,
    "import and first use / import torch": 1.3,
}


class AnyModule(nn.Module):
    """The same network, but not as a Sequential: only automatic differentiation can follow it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def task() -> tuple[nn.Sequential, Tensor]:
    """A trained network and the encoded rows it refuses, repeated up to 100,000."""
    data = hf.datasets.load("heloc")
    model = hf.train_network(
        data.X,
        data.y,
        data.schema,
        classes=["Bad", "Good"],
        hidden=(100, 32),
        epochs=10,
        batch_size=128,
    )
    x = data.schema.encode(data.X)
    net = model.module
    with torch.no_grad():
        refused = x[net(x).argmax(1) == 0]
    times = -(-100_000 // len(refused))
    # Repeats are nudged, so that no two rows are the same question.
    noise = (
        torch.rand(len(refused) * times, x.shape[1], generator=torch.Generator().manual_seed(0))
        * 1e-3
    )
    return net.requires_grad_(False), (refused.repeat(times, 1) + noise)[:100_000].clamp(0, 1)


def bare_pass(net: nn.Module, x: Tensor, wanted: Tensor) -> None:
    z = x.detach().requires_grad_()
    torch.autograd.grad(nn.functional.cross_entropy(net(z), wanted, reduction="sum"), z)


def eager_loop(net: nn.Module, x: Tensor, lam: float, lr: float) -> Tensor:
    """What one would write by hand: torch.optim and automatic differentiation."""
    z = x.clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=lr)
    wanted = torch.ones(len(x), dtype=torch.int64)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (
            nn.functional.cross_entropy(net(z), wanted, reduction="sum") + lam * (z - x).abs().sum()
        ).backward()
        optimizer.step()
        with torch.no_grad():
            z.clamp_(0, 1)
    return z.detach()


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def medians(jobs: dict[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, float]:
    """CPU seconds of each job; the repeats take turns."""
    for job in jobs.values():
        job()
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            taken[name].append(seconds(job))
    return {name: statistics.median(values) for name, values in taken.items()}


def speed(net: nn.Sequential, pool: Tensor) -> dict[str, float]:
    x = pool[:1000]
    schema = hf.Schema.box(23, 0, 1)
    fast = hf.Model.of(net, schema, classes=["Bad", "Good"])
    slow = hf.Model.of(AnyModule(net), schema, classes=["Bad", "Good"])
    descent = hf.Descent(norm=1, steps=STEPS, restarts=1)
    wanted = torch.ones(len(x), dtype=torch.int64)
    passes = 50
    took = medians(
        {
            "passes": lambda: [bare_pass(net, x, wanted) for _ in range(passes)],
            "fast": lambda: descent.explain(fast, x, "Good"),
            "slow": lambda: descent.explain(slow, x, "Good"),
            "one": lambda: descent.explain(fast, x[:1], "Good"),
            "eager one": lambda: eager_loop(net, x[:1], descent.lam, descent.lr),
            "eager": lambda: eager_loop(net, x, descent.lam, descent.lr),
        }
    )
    # Fewer steps here, so that the long run is short enough to be repeated in turn with the other.
    brief = hf.Descent(norm=1, steps=STEPS // 10, restarts=1)
    many = medians(
        {str(n): lambda n=n: brief.explain(fast, pool[:n], "Good") for n in (10_000, 100_000)}, 3
    )
    unit = took["passes"] / passes
    return {
        "unit (ms)": unit * 1e3,
        "descent, Linear/ReLU network (units)": took["fast"] / unit,
        "descent, any torch module (units)": took["slow"] / unit,
        "plain eager loop (units)": took["eager"] / unit,
        "one row (ms)": took["one"] * 1e3,
        "one row / plain eager loop": took["one"] / took["eager one"],
        "1,000 rows / one row": took["fast"] / took["one"],
        "cost per row, 100,000 / 10,000 rows": many["100000"] / 10 / many["10000"],
    }


def memory(net: nn.Sequential, pool: Tensor) -> dict[str, float]:
    """How much the peak grows while 1,000 rows are explained, once everything is loaded: in a
    process of its own, because what was freed before could be used again unseen."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save((net.state_dict(), pool[:1000].clone()), f"{folder}/task.pt")
        run = [sys.executable, __file__, "--memory", f"{folder}/task.pt"]
        out = subprocess.run(run, stdout=subprocess.PIPE, check=True, text=True).stdout
    return {"extra peak memory (MB)": float(out)}


def measure_memory(path: str) -> None:
    torch.set_num_threads(1)
    weights, rows = torch.load(path, weights_only=True)
    net = mlp(23, (100, 32), 2)
    net.load_state_dict(weights)
    model = hf.Model.of(net, hf.Schema.box(23, 0, 1), classes=["Bad", "Good"])
    descent = hf.Descent(norm=1, steps=STEPS, restarts=1)
    descent.explain(model, rows[:8], "Good")
    before = held("VmHWM")
    descent.explain(model, rows, "Good")
    print(held("VmHWM") - before)


def held(what: str) -> float:
    """Megabytes of this process; VmHWM is the peak so far (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def imports() -> dict[str, float]:
    jobs = {
        "torch": "import torch",
        "bare": "import holdfast",
        "used": "import holdfast as hf; hf.Schema, hf.Model, hf.Descent",
    }

    def run(code: str) -> float:
        timed = f"import time; t = time.process_time()\n{code}\nprint(time.process_time() - t)"
        return float(
            subprocess.run(
                [sys.executable, "-c", timed], capture_output=True, check=True, text=True
            ).stdout
        )

    taken = {name: [run(code)] for name, code in jobs.items()}
    for _ in range(REPEATS):
        for name, code in jobs.items():
            taken[name].append(run(code))
    took = {name: statistics.median(values[1:]) for name, values in taken.items()}
    return {
        "import holdfast / import torch": took["bare"] / took["torch"],
        "import and first use / import torch": took["used"] / took["torch"],
    }


def out_file(script: str) -> Path:
    """Where a benchmark writes: its first argument, or `benchmarks/results/<script>.json`."""
    return Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / f"{Path(script).stem}.json"


def write(figures: dict[str, float], limits: dict[str, float], path: Path) -> None:
    """Show the figures beside their limits, and keep them as JSON."""
    for name, value in figures.items():
        limit = limits.get(name)
        verdict = (
            ""
            if limit is None
            else f"   at most {limit:g}: {'holds' if value <= limit else 'MISSED'}"
        )
        print(f"{name:60} {value:10.3f}{verdict}")
    content = {
        "holdfast": hf.__version__,
        "torch": torch.__version__,
        "figures": figures,
        "limits": limits,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def main() -> None:
    torch.set_num_threads(1)
    net, pool = task()
    figures = memory(net, pool) | speed(net, pool) | imports()
    write(figures, LIMITS, out_file(__file__))


if __name__ == "__main__":
    measure_memory(sys.argv[2]) if sys.argv[1:2] == ["--memory"] else main()
