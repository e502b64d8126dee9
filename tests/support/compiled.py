"""A compiled model against the library itself."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.exceptions import ConvergenceWarning

import holdfast as hf
from holdfast.models.black_box import BlackBox, CompiledModel
from holdfast.models.compiled.build import probes, table_probes
from holdfast.models.compiled.tree_program import TreeProgram
from holdfast.models.scores import HARDLY

Maker = Callable[[], Any]


def outcome(table: pd.DataFrame, k: int) -> np.ndarray:
    """Classes that lean on every column."""
    total = np.zeros(len(table))
    for name in table:
        v = pd.factorize(table[name])[0].astype(float)
        total += (v - v.mean()) / (v.std() + 1e-9)
    return np.searchsorted(np.quantile(total, np.arange(1, k) / k), total)


def quietly(estimator: Any, X: Any, y: Any) -> Any:
    """Fitted, without the advice to train longer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def check(model: hf.Model, table: pd.DataFrame) -> None:
    """The compiled scorer and the library, on rows of the table, at thresholds and beside them."""
    assert isinstance(model, CompiledModel), model.conversion.text
    schema = model.schema
    scorer = model.scorer
    rows = table
    x = schema.encode(table, torch.float64)
    by_codes = (
        scorer.trees is not None and isinstance(scorer.run, TreeProgram) and model.inputs == "frame"
    )
    with model.eval_mode():
        compiled = model(x)
        original = model.score_frame(rows, x)
        assert torch.equal(model(x[3:4]), compiled[3:4])  # whatever the batch
        if by_codes:
            numbers = table_probes(schema, scorer.trees.ends)
            rows = schema.table(numbers)
            x = schema.encode_numbers(numbers, torch.float64)
            compiled = torch.cat([compiled, model(x)])
            original = torch.cat([original, model.score_frame(rows, x)])
        else:
            x = probes(schema, scorer.cuts)
            compiled = torch.cat([compiled, model(x)])
            original = torch.cat([original, BlackBox.__call__(model, x)])
    if model.outputs == "probabilities":
        assert (torch.softmax(compiled, 1) - torch.softmax(original, 1)).abs().max() < 1e-6
    else:
        # Columns in single precision are added up in it: the error is that of the largest terms,
        # whatever is left.
        single = bool((table.dtypes == np.float32).any())
        size = original.abs().amax() if single else original.abs()
        assert ((compiled - original).abs() / size.clamp_min(1)).max() < 1e-6
    chosen = original.gather(1, compiled.argmax(1, keepdim=True)).squeeze(1)
    # Classes may be level: of these, the one that the library predicts is put ahead by a hair.
    level = HARDLY + 1e-12 * original.abs().amax(1).clamp_min(1)
    assert (chosen >= original.amax(1) - level).all()
