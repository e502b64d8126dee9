"""Holdfast on the shared task: the smallest l1 and l2 changes.

python run_holdfast.py task.npz RESULTS_DIR
"""

import sys
import time

import torch
from network import network_from
from score import Run, load_task, record

import holdfast as hf


def main(task_path, out_dir):
    torch.set_num_threads(1)
    task = load_task(task_path)
    schema = hf.Schema.box([str(c) for c in task["columns"]], 0.0, 1.0)
    model = hf.Model.of(network_from(task), schema, classes=["Bad", "Good"])
    x = torch.tensor(task["X_explain"], dtype=torch.float32)
    for name, method in {
        "holdfast_min_cost_l1": hf.MinCost(norm=1),
        "holdfast_min_cost_l2": hf.MinCost(norm=2),
    }.items():
        method.explain(model, x[:8], "Good")  # imports are not part of the work
        cpu = time.process_time()
        wall = time.perf_counter()
        cfs = method.explain(model, x, "Good", seed=0)
        cpu = time.process_time() - cpu
        wall = time.perf_counter() - wall
        ran = Run(cfs.x_cf.double().numpy(), cpu, wall)
        record(out_dir, name, task, ran, "holdfast", method.get_params())


if __name__ == "__main__":
    main(*sys.argv[1:])
