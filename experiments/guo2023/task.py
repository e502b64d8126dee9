"""Guo et al. 2023: tables in subsets, as encoded rows of which every column may change."""

from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor

import holdfast as hf
from experiments.data import load_table
from holdfast.datasets import Dataset
from holdfast.schema.encoding import Encoding

REAL = ("german_credit", "student", "sba_loan")
SIMULATED = ("covariate_shift", "label_shift")
DATASETS = (*REAL, *SIMULATED)
TRAINED = 0.75  # of the rows of a subset, in the order of the file


@dataclass(frozen=True)
class Task:
    """Encoded rows of k subsets, all columns free."""

    names: tuple[str, ...]
    x: Tensor  # (n, d)
    y: Tensor  # (n,)
    train: list[Tensor]  # k lists of rows
    test: list[Tensor]
    schema: hf.Schema
    encoding: Encoding

    def __len__(self) -> int:
        return len(self.names)

    @property
    def unlimited(self) -> hf.Schema:
        """The schema without the range of the data: numbers go anywhere."""
        return hf.Schema(
            tuple(f if f.is_category else hf.Feature(f.name) for f in self.schema.features)
        )

    def asked(self, subset: int, rows: int | None = None) -> Tensor:
        """The first test rows of a subset; None: all."""
        return self.x[self.test[subset]][:rows]


def subsets(name: str) -> dict[str, Dataset]:
    """The tables; they share a schema."""
    if name == "german_credit":
        return {
            kind: load_table(f"german_rocoursenet_{kind}") for kind in ("original", "corrected")
        }
    if name in SIMULATED:
        return {part: load_table(name).part(part) for part in ("before", "after")}
    loaded = load_table(name, rocoursenet=True)
    assert loaded.parts is not None
    return {str(part): loaded.part(part) for part in sorted(loaded.parts.unique())}


@cache
def prepare(name: str, share: float = 1.0) -> Task:
    """A test part of the last quarter of each subset, in the order of the file; of the rest, the
    first `share`."""
    tables = subsets(name)
    schema = next(iter(tables.values())).schema
    xs = [schema.encode(part.X) for part in tables.values()]
    classes = sorted(next(iter(tables.values())).y.unique())
    ys = [torch.tensor((part.y == classes[1]).to_numpy()).long() for part in tables.values()]
    train = list[Tensor]()
    test = list[Tensor]()
    starts = [0, *accumulate(len(x) for x in xs)]
    for x, start in zip(xs, starts, strict=False):
        cut = round(TRAINED * len(x))
        train.append(start + torch.arange(max(1, round(share * cut))))
        test.append(start + torch.arange(cut, len(x)))
    x = torch.cat(xs)
    # all columns from 0 to 1, over all subsets
    x = (x - x.amin(0)) / (x.amax(0) - x.amin(0)).clamp_min(1e-12)
    free = _free(schema)
    return Task(tuple(tables), x, torch.cat(ys), train, test, free, free.encoding())


def _free(schema: hf.Schema) -> hf.Schema:
    """Encoded numbers as they are, categories with their levels; nothing fixed, no bounds but the
    data's range."""
    out = list[hf.Feature]()
    for f in schema.features:
        if f.is_category:
            levels = tuple(str(i) for i in range(f.width))
            out.append(hf.Feature(f.name, kind="category", levels=levels))
        else:
            out.append(hf.Feature(f.name, seen=(0.0, 1.0)))
    return hf.Schema(tuple(out))
