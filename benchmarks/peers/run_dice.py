"""Run dice-ml on the first rows of the shared task (it is slow: the number of rows is recorded).

python run_dice.py task.npz RESULTS_DIR
"""

import random
import sys
import time
import warnings

import dice_ml
import numpy as np
import pandas as pd
import torch
from network import network_from
from raiutils.exceptions import UserConfigValidationException
from score import Run, load_task, record

ROWS = {"random": 100, "genetic": 100, "gradient": 20}
# Scaled values have endless decimals; three keep dice-ml's own sparsity search to steps of 0.001.
DECIMALS = 3


def make_explainer(task, method):
    columns = list(task["columns"])
    train = pd.DataFrame(task["X_train"], columns=columns).assign(Good=task["y_train"])
    data = dice_ml.Data(
        dataframe=train,
        continuous_features=columns,
        outcome_name="Good",
        continuous_features_precision={name: DECIMALS for name in columns},
    )
    # The features are in [0, 1] already, so the library's own min-max step changes nothing.
    model = dice_ml.Model(model=network_from(task, softmax=True), backend="PYT", func="ohe-min-max")
    return dice_ml.Dice(data, model, method=method)


def one_answer(explainer, row, ranges):
    """Return the counterfactual for a one-row frame, or NaN where the library finds none."""
    try:
        result = explainer.generate_counterfactuals(
            row, total_CFs=1, desired_class=1, permitted_range=ranges, verbose=False
        )
    except UserConfigValidationException:
        return np.full(row.shape[1], np.nan)
    found = result.cf_examples_list[0].final_cfs_df_sparse
    if found is None or len(found) == 0:
        return np.full(row.shape[1], np.nan)
    return found[list(row.columns)].to_numpy(dtype=np.float64)[0]


def run(task, method):
    start = time.process_time()
    explainer = make_explainer(task, method)
    setup = time.process_time() - start
    queries = pd.DataFrame(task["X_explain"][: ROWS[method]], columns=list(task["columns"]))
    ranges = {name: [0.0, 1.0] for name in queries.columns}
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    cpu = time.process_time()
    wall = time.perf_counter()
    answers = [one_answer(explainer, queries.iloc[[i]], ranges) for i in range(len(queries))]
    return Run(np.array(answers), time.process_time() - cpu, time.perf_counter() - wall, setup)


def main(task_path, out_dir, *methods):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    task = load_task(task_path)
    for method in methods or ROWS:
        settings = {
            "method": method,
            "total_CFs": 1,
            "desired_class": 1,
            "permitted_range": [0, 1],
            "continuous_features_precision": DECIMALS,
            "others": "library defaults",
            "model": "float32 torch",
        }
        record(out_dir, f"dice_{method}", task, run(task, method), "dice-ml", settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
