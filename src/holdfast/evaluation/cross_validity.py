"""Cross-validity: what answers made for the model of one subset of the data are worth on the models
of the others.

Data come in k subsets (years, schools, branches), each with its own model. For the rows i that
needed an answer,

    V[i, j]          share of all rows of subset i with an answer that gives what was asked on the
                     models of subset j
    validity         mean of V[i, i]                     with the sd of these k values
    robust validity  mean of V[i, j], i != j             with the sd of these k (k - 1) values
    decrease         V[i, i] - V[i, j]
    proximity        mean over i of the mean l1 cost     with the sd of a sample of k

(Guo, Jia, Chen, Squicciarini and Yadav, "RoCourseNet: Robust Training of a Prediction Aware
Recourse Model", CIKM 2023, whose shifted models are those of the single subsets.) A row with no
answer holds nowhere, so that a method cannot gain by refusing hard rows. Costs are taken on encoded
columns: another category costs 2.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from holdfast._core.checks import listed
from holdfast._core.files import read_bytes
from holdfast._core.progress import Progress
from holdfast._core.result import as_json, write_csv
from holdfast._core.seal import sealed, unsealed
from holdfast.auditing.independence import refuse_guides
from holdfast.auditing.verdicts import by_row, verdicts
from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import FileError, HoldfastError, SettingError
from holdfast.evaluation._saved import write_as
from holdfast.evaluation.report import by_name
from holdfast.retraining.bank import ModelBank
from holdfast.target import Status

Array = np.ndarray[Any, Any]
KIND = "cross-validity"
FORMAT = 1  # of its file
MOST_BYTES = 1 << 28


class Spread(NamedTuple):
    """A mean and a standard deviation."""

    mean: float
    sd: float


def cross_validity(
    answers: Mapping[Any, Counterfactuals],
    bank: ModelBank,
    *,
    attempts: bool = False,
    progress: bool = False,
) -> "CrossValidity":
    """Put the answers of each subset before the models of all subsets.

    Args:
        answers: for each subset, by name, the answers found on its model.
        bank: models of all subsets, one family each, of the same names: see
            `ModelBank.from_tables`. The models that were asked may be among them; other models that
            guided a search may not.
        attempts: count best attempts, which the asked model refuses, like answers, as published
            tables do.
        progress: show a bar on stderr.

    Returns:
        A `CrossValidity`: the matrix of validities, what follows from it, a plot.

    >>> import holdfast as hf
    >>> years = {str(year): hf.datasets.overlapping(n=200, seed=year) for year in (2007, 2008)}
    >>> tables = {year: (data.X, data.y) for year, data in years.items()}
    >>> schema = years["2007"].schema
    >>> bank = hf.ModelBank.from_tables(hf.Recipe(hidden=[], epochs=20, lr=0.1), tables, schema)
    >>> cfs = {}
    >>> for i, (year, (X, y)) in enumerate(tables.items()):
    ...     cfs[year] = hf.Descent().explain(bank.model(i), X.head(20), "yes")
    >>> found = hf.cross_validity(cfs, bank)
    >>> found.validity.mean
    1.0
    >>> found.table().shape
    (2, 2)
    """
    known = _checked(answers, bank)
    held = list[Array]()
    cost = list[float]()
    with Progress(progress, "cross-validity") as bar:
        bar.total(len(known) * len(bank.groups))
        for name, cfs in known.items():
            unmet = cfs.status_codes != Status.ALREADY_MET
            if not unmet.any():
                raise SettingError(
                    f"no row of {name!r} needed an answer, so it has no validity; leave that "
                    "subset out"
                )
            some = (
                replace(cfs, status_codes=np.where(unmet, Status.FOUND, cfs.status_codes))
                if attempts
                else cfs
            )
            has_answer = some.answered
            # (M, rows)
            holding = by_row(some, verdicts(some, bank, bar) & has_answer)[:, by_row(some, unmet)]
            held.append(np.stack([holding[bank.family == family].mean(0) for family in known]))
            cost.append(
                float(some.cost("l1").to_numpy()[has_answer].mean())
                if has_answer.any()
                else float("nan")
            )
    rows = tuple(part.shape[1] for part in held)
    models = tuple(bank.families[name] for name in known)
    return CrossValidity(tuple(known), validity_matrix(held), np.array(cost), rows, models)


def _checked(answers: Mapping[Any, Counterfactuals], bank: ModelBank) -> dict[str, Counterfactuals]:
    """The answers by the names of the bank's families, or an error unless all of them fit."""
    good = isinstance(answers, Mapping) and all(
        isinstance(cfs, Counterfactuals) for cfs in answers.values()
    )
    wanted = "answers by subset, like {'2004': cfs, '2005': cfs}, and a ModelBank"
    good = good and isinstance(bank, ModelBank)
    if not good:
        raise SettingError(
            f"cross_validity takes {wanted}; make a bank with hf.ModelBank.from_tables(...)"
        )
    # as the bank spells them: years are often numbers
    known = {str(name): cfs for name, cfs in answers.items()}
    if len(known) < len(answers):
        raise SettingError(f"subsets need different names, got {listed(answers)}")
    only = {"answers": [n for n in known if n not in bank.families]}
    only["models"] = [n for n in bank.families if n not in known]
    words = [f"only {what} for {listed(names)}" for what, names in only.items() if names]
    if not known or words:
        raise SettingError(
            "answers and models must be of the same subsets; "
            f"{' and '.join(words) or 'there are none'}"
        )
    for name, cfs in known.items():
        try:
            bank.check_fits(cfs)
            refuse_guides(cfs, bank)
        except HoldfastError as error:
            raise type(error)(f"answers of {name!r}: {error}") from None
    return known


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidity:
    """How answers of each subset fare on the models of each subset, and what follows from it.

    >>> import holdfast as hf, numpy as np
    >>> names = ("2007", "2008")  # answers of 2007 hold on 60 % of the models of 2008
    >>> matrix = np.array([[1.0, 0.6], [0.8, 1.0]])
    >>> cost = np.array([1.0, 2.0])
    >>> found = hf.CrossValidity(names, matrix, cost, rows=(5, 5), models=(1, 1))
    >>> round(found.robust_validity.mean, 3)
    0.7
    """

    names: tuple[str, ...]
    matrix: Array  # (k, k) V[i, j]: answers of i on models of j
    cost: Array  # (k,) mean l1 of the answers, on encoded columns
    rows: tuple[int, ...]  # how many rows of each subset needed an answer
    models: tuple[int, ...]  # how many models each subset has

    def __len__(self) -> int:
        return len(self.names)

    @property
    def validity(self) -> Spread:
        """On models of the same subset: the diagonal.

        Paper: guo2023 Metric validity.
        """
        return spread(np.diagonal(self.matrix))

    @property
    def robust_validity(self) -> Spread:
        """On models of the other subsets: all entries off the diagonal.

        Paper: guo2023 Metric robust validity.
        """
        if len(self) < 2:
            raise SettingError(
                "robust validity needs the models of other subsets; there is only "
                f"{self.names[0]!r}"
            )
        return spread(self.matrix[~np.eye(len(self), dtype=bool)])

    @property
    def proximity(self) -> Spread:
        """The mean cost of the subsets, each counted once.

        Paper: guo2023 Metric proximity.
        """
        return spread(self.cost, sample=True)

    def neighbours(self, width: int = 1) -> Spread:
        """On models of the subset `width` further on, like the next year; below 0, further
        back."""
        most = f"{len(self) - 1} for {len(self)} subsets"
        if not 1 <= abs(width) < len(self):
            raise SettingError(f"width must lie between 1 and {most}, got {width}")
        return spread(np.diagonal(self.matrix, offset=width))

    def decrease(self) -> Array:
        """(k, k) V[i, i] - V[i, j]: what answers of i lose on models of j."""
        return np.diagonal(self.matrix)[:, None] - self.matrix

    def table(self) -> pd.DataFrame:
        """The matrix with its names: answers down, models across."""
        names = list(self.names)
        return pd.DataFrame(
            self.matrix, pd.Index(names, name="answers of"), pd.Index(names, name="models of")
        )

    def measures(self) -> pd.DataFrame:
        """Mean and standard deviation of validity, robust validity and proximity."""
        lines = {"validity": self.validity}
        if len(self) > 1:
            lines["robust validity"] = self.robust_validity
        lines["proximity"] = self.proximity
        return pd.DataFrame(
            list(lines.values()), pd.Index(list(lines), name="measure"), ["mean", "sd"]
        )

    def summary(self) -> str:
        """One line: how many subsets, rows and models, and the means."""
        means = ", ".join(f"{name} {mean:.4g}" for name, mean in self.measures()["mean"].items())
        return f"{self._head()}: {means}"

    def _head(self) -> str:
        return (
            f"Cross-validity of {len(self)} subsets, answers for {sum(self.rows)} rows, "
            f"{sum(self.models)} models"
        )

    def plot(self) -> Any:
        """The matrix as a heat-map; needs the `plot` extra."""
        from holdfast.render.charts.shift import validity_heatmap

        return validity_heatmap(self.matrix, self.names)

    def report(self, path: str | Path) -> Path:
        """Write a self-contained page with the matrix and its heat-map; needs the `plot` extra."""
        from holdfast.render.result_page import study_page

        facts = [
            (f"Subset {name}", f"{rows} rows, {models} models")
            for name, rows, models in zip(self.names, self.rows, self.models, strict=True)
        ]
        caption = "The share of the answers of each subset that models of each subset accept."
        return study_page(self, path, "Cross-validity", caption, facts)

    # ---- files

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, unrounded."""
        return {
            "names": list(self.names),
            "matrix": self.matrix.tolist(),
            "cost": [None if np.isnan(value) else value for value in self.cost.tolist()],
            "rows": list(self.rows),
            "models": list(self.models),
            "measures": by_name(self.measures()),
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, also written to a file if a path is given."""
        return as_json(self.to_dict(), path)

    def save(self, path: str | Path) -> None:
        """Write the format of the extension: .json has everything, for `load`, with a checksum;
        .csv what `table` gives."""
        content = sealed(KIND, FORMAT, self.to_dict())
        write_as(
            path,
            {
                ".json": lambda file: as_json(content, file),
                ".csv": lambda file: write_csv(self.table(), file),
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> "CrossValidity":
        """Read a .json file written by `save` or `to_json`."""
        try:
            content = json.loads(read_bytes(path, MOST_BYTES))
            if not content.keys().isdisjoint(("digest", "format", "file")):
                content = unsealed(KIND, FORMAT, content)
            names = tuple(str(name) for name in content["names"])
            matrix = np.array(content["matrix"], dtype=float)
            cost = np.array(content["cost"], dtype=float)
            rows = tuple(int(count) for count in content["rows"])
            models = tuple(int(count) for count in content["models"])
        except FileNotFoundError:
            raise FileError(f"no file at {str(path)!r}") from None
        except Exception as error:  # the file may say anything
            raise FileError(
                f"{str(path)!r} is not a cross-validity ({type(error).__name__}: {error})"
            ) from None
        k = len(names)
        fits = matrix.shape == (k, k) and cost.shape == (k,) and len(rows) == len(models) == k
        if not fits:
            raise FileError(
                f"{str(path)!r} is not a cross-validity of {k} subsets: its parts have other sizes"
            )
        return cls(names, matrix, cost, rows, models)

    def __repr__(self) -> str:
        return f"{self._head()}\n{self.measures().to_string(float_format=lambda v: f'{v:.4g}')}"

    def _repr_html_(self) -> str:
        return self.measures().to_html(float_format=lambda v: f"{v:.4g}", border=0)


# ---- on plain arrays


def validity_matrix(held: Sequence[Any]) -> Array:
    """(k, k) V from k arrays (k, n_i): does the model of subset j accept the answer for row r of
    subset i?

    Instead of yes or no the arrays may hold the share of a subset's models that accept.
    """
    parts = [np.asarray(part, dtype=np.float64) for part in held]
    for i, part in enumerate(parts):
        if part.ndim != 2 or len(part) != len(parts) or not part.shape[1]:
            raise SettingError(
                f"subset {i} of {len(parts)} needs {len(parts)} models by its rows, got "
                f"{part.shape}"
            )
    return np.array([part.mean(1) for part in parts]).reshape(len(parts), len(parts))


def spread(values: Any, *, sample: bool = False) -> Spread:
    """Mean and standard deviation, of the values themselves or, as a `sample` of more, divided by
    one less."""
    known = np.asarray(values, dtype=np.float64).ravel()
    if not known.size:
        raise SettingError("cannot take the mean of an empty list of values")
    sd = float(known.std(ddof=int(sample))) if known.size > 1 or not sample else float("nan")
    return Spread(float(known.mean()), sd)
