"""Höltgen et al. 2021: the searches that were made, and the tables they give."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.experiment import Figures
from experiments.hoeltgen2021 import setup
from experiments.hoeltgen2021.checks import Counts, promises
from experiments.hoeltgen2021.outcomes import (
    Outcome,
    both_ways,
    by_target,
    over_sets,
    spread,
    succeeded,
)
from experiments.hoeltgen2021.pictures import FAILED, stored
from experiments.hoeltgen2021.reported import METHODS, TABLE_5
from experiments.parts import Arrays
from experiments.tables import known

ORIGINALS = "originals"
RECONSTRUCTIONS = "reconstructions"


@dataclass(frozen=True)
class Study:
    """Searches that were made, and the figures they give."""

    kit: setup.Kit
    questions: dict[str, setup.Question]
    found: dict[str, Arrays]
    sets: int

    @property
    def others(self) -> int:
        """Classes that an image can be turned to."""
        return setup.prepare(self.kit.name).classes - 1

    @property
    def each(self) -> int:
        """Pairs of a set."""
        return len(self.questions["DeDUCE spectral 0"].images) * self.others

    @cached_property
    def common(self) -> setup.Array:
        """Pairs of a set that all methods were asked about, as numbers of its pairs."""
        first = np.array(self.kit.setting.common)[:, None] * self.others
        return (first + np.arange(self.others)).reshape(-1)

    def parts(self, label: str, kind: str) -> list[tuple[Tensor, Arrays]]:
        """Images of the pairs and what was found, set by set."""
        keys = [f"{label} {kind} {k}" for k in range(self.sets)]
        return [(self.questions[key].pairs(self.kit.name), self.found[key]) for key in keys]

    def outcome(self, parts: list[tuple[Tensor, Arrays]], most: int | None) -> Outcome:
        x = np.stack([images.flatten(1).numpy() for images, _ in parts])
        x_cf = np.stack([cell["x_cf"].reshape(len(cell["x_cf"]), -1) for _, cell in parts])
        codes = np.stack([cell["codes"] for _, cell in parts])
        iterations = np.stack([cell["iterations"] for _, cell in parts])
        confidence = np.stack([cell["confidence"] for _, cell in parts])
        ok = succeeded(codes, iterations, most)
        return Outcome.of(x, x_cf, ok, iterations=iterations, confidence=confidence)

    def on_test(self, label: str, kind: str) -> Outcome:
        """Of all pairs that a method was asked about."""
        method = setup.greedy(self.questions[f"{label} {kind} 0"])
        return self.outcome(self.parts(label, kind), None if method is None else method.max_iter)

    def answers(self, label: str, kind: str) -> setup.Array:
        """(sets, common pairs, c, h, w)"""
        pairs = self.common if label in setup.GREEDY else slice(None)
        return np.stack([cell["x_cf"][pairs] for _, cell in self.parts(label, kind)])

    @cached_property
    def originals(self) -> Tensor:
        """Images that all methods were asked about (sets, images, c, h, w)."""
        task = setup.prepare(self.kit.name)
        return torch.stack(
            [task.test[list(self.questions[f"VLK plain {k}"].images)] for k in range(self.sets)]
        )

    @cached_property
    def to_score(self) -> dict[str, setup.Array]:
        """Images (n, c, h, w) whose realism is scored."""
        x = self.originals.flatten(0, 1)
        out = {f"{label} {kind}": self.answers(label, kind) for label, kind in setup.RUNS}
        out = {key: pixels.reshape(-1, *pixels.shape[2:]) for key, pixels in out.items()}
        return out | {ORIGINALS: x.numpy(), RECONSTRUCTIONS: self.kit.vae.reconstruct(x).numpy()}

    def violations(self, more: dict[str, Arrays]) -> dict[str, Counts]:
        """Broken promises of every search."""
        out = dict[str, Counts]()
        models = {kind: self.kit.model(kind) for kind in setup.CLASSIFIERS}
        for key, question in self.questions.items():
            method = setup.greedy(question)
            if method is not None:
                out[key] = promises(
                    method, models[question.kind], question.pairs(self.kit.name), self.found[key]
                )
        for label, kind in setup.RUNS:
            cell = more[f"again {label} {kind}"]
            out[f"{label} {kind} again"] = {
                str(k): int(n) for k, n in zip(cell["names"], cell["counts"], strict=True)
            }
        return out

    # ---- the tables

    def measured(self, more: dict[str, Arrays]) -> Figures:
        scores = {
            key: more[f"AnoGAN {key}"]["score"].reshape(self.sets, -1) for key in self.to_score
        }
        on_all = {(m, k): self.on_test(m, k) for m, k in setup.RUNS}
        common = dict[tuple[str, str], Outcome]()
        for (m, k), outcome in on_all.items():
            outcome = outcome.at(self.common) if m in setup.GREEDY else outcome
            common[m, k] = replace(outcome, figures={"AGAN": scores[f"{m} {k}"], **outcome.figures})
        target = np.stack([cell["target"] for _, cell in self.parts("DeDUCE", "spectral")])
        classes = self.others + 1
        return {
            "table 1": {
                what: {
                    "all pairs": both_ways({m: on_all[m, kinds[m]] for m in setup.GREEDY}),
                    "common pairs": both_ways({m: common[m, kinds[m]] for m in METHODS}),
                }
                for what, kinds in setup.KINDS.items()
            },
            "realism of images": {
                key: over_sets(scores[key], np.ones_like(scores[key], bool))
                for key in (ORIGINALS, RECONSTRUCTIONS)
            },
            "quantiles": {
                f"{m} {k}": {
                    name: spread(on_all[m, k].of_found(name)) for name in ("L0", "L1", "iterations")
                }
                | {
                    "AGAN": spread(common[m, k].of_found("AGAN")),
                    "most": int(on_all[m, k].figures["iterations"].max()),
                }
                for m, kinds in setup.GREEDY.items()
                for k in kinds
            },
            "by target": {
                f"{m} {k}": by_target(on_all[m, k], target, classes)
                for m, ks in setup.GREEDY.items()
                for k in ks
            },
            "table 2": {
                f"{m} {k}": self._seconds(m, k, more[f"again {m} {k}"]) for m, k in setup.RUNS
            },
            "table 3": {what: self._pairs(common, kinds) for what, kinds in setup.KINDS.items()},
            "table 4": both_ways({label: self._validated(label) for label in setup.ABLATION}),
            "table 5": both_ways(
                {setup.tuned(*key): self._validated(setup.tuned(*key)) for key in TABLE_5}
            ),
            "auroc": {
                str(score): dict(
                    zip(map(str, more["sanity"]["kinds"]), map(known, row), strict=True)
                )
                for score, row in zip(
                    more["sanity"]["scores"], more["sanity"]["auroc"], strict=True
                )
            },
            "spread of AnoGAN": known(
                np.mean([more[f"AnoGAN {key}"]["spread"].mean() for key in self.to_score])
            ),
            "pictured": self._pictured(common),
        }

    def _validated(self, key: str) -> Outcome:
        question = self.questions[key]
        method = setup.greedy(question)
        part = question.pairs(self.kit.name), self.found[key]
        return self.outcome([part], None if method is None else method.max_iter)

    def _seconds(self, label: str, kind: str, again: Arrays) -> Figures:
        """CPU seconds of a pair, alone (with the standard deviation over pairs), and in its
        batch.

        Paper: hoeltgen2021 Metric running time, Table 2.
        """
        alone = again["took"]
        batch = [float(cell["took"]) for _, cell in self.parts(label, kind)]
        sd = known(alone.std(ddof=1)) if len(alone) > 1 else None
        return {
            "alone": [known(alone.mean()), sd],
            "pairs alone": len(alone),
            "in a batch": known(np.mean(batch)),
        }

    def _at(self, image: int, target: int) -> int:
        """The number of a pair of the first set among the common ones."""
        own = int(setup.prepare(self.kit.name).test_y[image])
        return self.kit.setting.common.index(image) * self.others + target - (target > own)

    def _shown(self) -> list[tuple[int, int]]:
        common = self.kit.setting.common
        return [
            (i, t)
            for i, t in setup.shown(self.kit.setting, setup.prepare(self.kit.name))
            if i in common
        ]

    def _pairs(self, common: dict[tuple[str, str], Outcome], kinds: dict[str, str]) -> Figures:
        """Table 3: AGAN, L0 and L1 of some pairs, none where a method failed.

        Paper: hoeltgen2021 Table 3.
        """
        out: dict[str, Any] = {
            "pairs": [[i, int(setup.prepare(self.kit.name).test_y[i]), t] for i, t in self._shown()]
        }
        for m in METHODS:
            o = common[m, kinds[m]]
            places = [self._at(i, t) for i, t in self._shown()]
            cells = [
                [known(o.figures[name][0, p]) for name in ("AGAN", "L0", "L1")] for p in places
            ]
            out[m] = [cell if o.ok[0, p] else None for cell, p in zip(cells, places, strict=True)]
        return out

    def _pictured(self, common: dict[tuple[str, str], Outcome]) -> Figures:
        """Boards: the pairs of Table 3 by all methods, and the first image of them to every
        class."""
        labels = setup.prepare(self.kit.name).test_y
        pairs = self._shown()
        if not pairs:
            return {}
        first = self.kit.setting.common

        def cell(m: str, k: str, image: int, target: int) -> tuple[setup.Array, str]:
            o = common[m, k]
            p = self._at(image, target)
            pixels = self.answers(m, k)[0, p].mean(0)
            return (
                (pixels, f"{int(o.figures['L0'][0, p])} pixels")
                if o.ok[0, p]
                else (0 * pixels, FAILED)
            )

        def original(image: int) -> tuple[setup.Array, str]:
            return self.originals[0, first.index(image)].mean(0).numpy(), ""

        out = dict[str, Any]()
        for what, kinds in setup.KINDS.items():
            rows = [[original(i), *(cell(m, kinds[m], i, t) for m in METHODS)] for i, t in pairs]
            names = [f"{labels[i]} → {t}, image {i}" for i, t in pairs]
            out[f"{what}-networks"] = _board(names, ["original", *METHODS], rows)
        image = pairs[0][0]
        targets = [t for t in range(self.others + 1) if t != labels[image]]
        rows = [
            [original(image), *(cell(m, setup.KINDS["same"][m], image, t) for t in targets)]
            for m in METHODS
        ]
        out["all-targets"] = _board([*METHODS], ["original", *(f"→ {t}" for t in targets)], rows)
        return out


def _board(
    rows: list[str], columns: list[str], cells: list[list[tuple[setup.Array, str]]]
) -> Figures:
    images = np.stack([[pixels for pixels, _ in row] for row in cells])
    return stored(rows, columns, images, [[words for _, words in row] for row in cells])
