"""Run the ElasticNet attack of the Adversarial Robustness Toolbox on the shared task.

python run_art.py task.npz RESULTS_DIR
"""

import sys
import time

import numpy as np
import torch
from art.attacks.evasion import ElasticNet
from art.estimators.classification import PyTorchClassifier
from network import network_from
from score import Run, load_task, record

SWEEP = [
    (rule, rate, beta)
    for rule in ("L1", "L2")
    for rate in (1e-2, 1e-1)
    for beta in ((1e-3, 1e-2, 1e-1) if rule == "L1" else (1e-4, 1e-3, 1e-2))
]


def run(task, settings):
    classifier = PyTorchClassifier(
        model=network_from(task),
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=(len(task["columns"]),),
        nb_classes=2,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    x = task["X_explain"].astype(np.float32)
    wanted = np.ones(len(x), dtype=np.int64)
    attack = ElasticNet(classifier, targeted=True, batch_size=len(x), verbose=False, **settings)
    cpu = time.process_time()
    wall = time.perf_counter()
    answers = attack.generate(x, y=wanted)
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall
    answers = answers.astype(np.float64)
    # Where it finds nothing, ART hands the row back unchanged: that is no answer.
    answers[(answers == x).all(axis=1)] = np.nan
    return Run(answers, cpu, wall)


def attempt(task, out_dir, name, **settings):
    about = {
        "attack": "ElasticNet",
        "batch_size": "all rows",
        "model": "float32 torch",
        **settings,
    }
    ran = run(task, settings)
    return record(out_dir, name, task, ran, "adversarial-robustness-toolbox", about)


def main(task_path, out_dir):
    torch.set_num_threads(1)
    task = load_task(task_path)
    entries = [
        attempt(
            task,
            out_dir,
            f"art_{rule.lower()}_lr{rate:g}_beta{beta:g}",
            decision_rule=rule,
            learning_rate=rate,
            beta=beta,
            max_iter=100,
            binary_search_steps=9,
        )
        for rule, rate, beta in SWEEP
    ]
    # One long run for each rule shows how much of the gap to the best is only a matter of
    # iterations.
    for rule, key in (("L1", "l1"), ("L2", "l2")):
        same_rule = [e for e in entries if e["settings"]["decision_rule"] == rule]
        full = [e for e in same_rule if e["validity"] == 1.0] or same_rule
        best = min(full, key=lambda e: e[key])["settings"]
        attempt(
            task,
            out_dir,
            f"art_{key}_long",
            decision_rule=rule,
            learning_rate=best["learning_rate"],
            beta=best["beta"],
            max_iter=1000,
            binary_search_steps=9,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
