"""Make the shared HELOC task: data, one trained network and the rows to explain, in one .npz file.

    HOLDFAST_DATA=DIR python task.py task.npz

DIR is the directory that holds heloc/heloc.csv.gz.
"""

import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

SEED = 0
N_EXPLAIN = 1000
LAYERS = (23, 100, 32, 2)


def load_heloc():
    """Return the features (float64), the 0/1 target and the column names, without the empty
    records."""
    frame = pd.read_csv(Path(os.environ["HOLDFAST_DATA"]) / "heloc" / "heloc.csv.gz")
    target = (frame.pop("RiskPerformance") == "Good").to_numpy().astype(np.int64)
    features = frame.to_numpy(dtype=np.float64)
    # -9 in every column means that the credit bureau had no record: nothing there to explain.
    keep = ~(features == -9).all(axis=1)
    return features[keep], target[keep], list(frame.columns)


def split_and_scale(features, target):
    """Split 75/25 and scale every feature to [0, 1] with the training minimum and maximum."""
    order = np.random.default_rng(SEED).permutation(len(features))
    n_train = int(0.75 * len(features))
    train = order[:n_train]
    test = order[n_train:]
    low = features[train].min(axis=0)
    high = features[train].max(axis=0)
    scaled = np.clip((features - low) / (high - low), 0.0, 1.0)
    return scaled[train], target[train], scaled[test], target[test], low, high


def train_network(x, y, epochs=50, batch=128):
    torch.manual_seed(SEED)
    steps = []
    for n_in, n_out in itertools.pairwise(LAYERS):
        steps += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU()]
    network = torch.nn.Sequential(*steps[:-1])
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    x = torch.tensor(x, dtype=torch.float32)
    y = torch.tensor(y)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimiser.step()
    return network


def weights_of(network):
    """Return W1, b1, W2, ... with W of shape (inputs, outputs), so that a layer is x @ W + b."""
    weights = {}
    for i, layer in enumerate((m for m in network if isinstance(m, torch.nn.Linear)), start=1):
        weights[f"W{i}"] = layer.weight.detach().numpy().T.astype(np.float64)
        weights[f"b{i}"] = layer.bias.detach().numpy().astype(np.float64)
    return weights


def main(out_path):
    from score import forward

    torch.set_num_threads(1)
    features, target, columns = load_heloc()
    x_train, y_train, x_test, y_test, low, high = split_and_scale(features, target)
    weights = weights_of(train_network(x_train, y_train))

    bad_test = np.flatnonzero(forward(weights, x_test).argmax(axis=1) == 0)
    bad_train = np.flatnonzero(forward(weights, x_train).argmax(axis=1) == 0)
    from_test = bad_test[:N_EXPLAIN]
    from_train = bad_train[: N_EXPLAIN - len(from_test)]
    x_explain = np.vstack([x_test[from_test], x_train[from_train]])

    facts = {
        "dataset": "HELOC without the rows that are -9 in every feature",
        "rows": len(features),
        "train_rows": len(x_train),
        "test_rows": len(x_test),
        "network": "-".join(map(str, LAYERS)) + " ReLU",
        "train_accuracy": float((forward(weights, x_train).argmax(axis=1) == y_train).mean()),
        "test_accuracy": float((forward(weights, x_test).argmax(axis=1) == y_test).mean()),
        "test_rows_predicted_bad": len(bad_test),
        "explained_rows": len(x_explain),
        "explained_from_test": len(from_test),
        "explained_from_train": len(from_train),
        "torch": torch.__version__,
        "seed": SEED,
    }
    np.savez(
        out_path,
        **weights,
        X_train=x_train,
        y_train=y_train,
        X_test=x_test,
        y_test=y_test,
        X_explain=x_explain,
        columns=np.array(columns),
        lo=np.zeros(len(columns)),
        hi=np.ones(len(columns)),
        raw_min=low,
        raw_max=high,
        facts=np.array(json.dumps(facts)),
    )
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main(sys.argv[1])
