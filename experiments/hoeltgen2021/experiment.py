"""Höltgen, Schut, Brauner and Gal, "DeDUCE: Generating Counterfactual Explanations At Scale", 2021.

Every one of 5 x 100 test digits to each of the 9 other classes: how many pixels change, by how much, how real the
answers look, what fails, and how long it takes. The paper runs its rivals on another network than its own; here all are
measured on the same one as well.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.cells import Arrays, Cells
from experiments.hoeltgen2021.checks import Counts, kept, promises
from experiments.hoeltgen2021.page import brief, page
from experiments.hoeltgen2021.pictures import FAILED, charts, stored
from experiments.hoeltgen2021.reported import METHODS, TABLE_5
from experiments.hoeltgen2021.setup import (
    ABLATION,
    CLASSIFIERS,
    GREEDY,
    KINDS,
    NEEDS,
    NETWORKS,
    RUNS,
    SETS,
    SETTINGS,
    Array,
    Asked,
    Kit,
    about,
    greedy,
    in_other_company,
    network,
    prepare,
    questions,
    sanity,
    scored,
    search,
    shown,
    tuned,
)
from experiments.hoeltgen2021.tables import Outcome, both_ways, by_target, findings, known, over_sets, spread, succeeded
from holdfast import __version__

__all__ = ["SETTINGS", "brief", "charts", "page", "run"]
MODELS = POOL = SETS  # what is repeated are test sets
QUICK, QUICK_MODELS, FULL = "digits", SETS, ("mnist",)
WORKERS = 2  # processes
Makes = dict[str, tuple[Callable[[], Arrays], Any]]  # cell -> how it is made, and what decides its contents
ORIGINALS, RECONSTRUCTIONS = "originals", "reconstructions"


def run(name: str, cells: Cells, *, models: int = SETS, rows: int | None = None, seed: int = 0) -> dict[str, Any]:
    """All tables of one set of images.

    Args:
        models: how many test sets.
        rows: images of a test set at most.
    """
    setting = SETTINGS[name]
    images = min(rows or setting.images, setting.images)
    setting = replace(setting, common=tuple(i for i in setting.common if i < images))
    cells = replace(cells, settings={"seed": seed, "version": __version__})

    def made(jobs: Makes) -> dict[str, Arrays]:
        listed = [(f"{name}/{key.replace('/', ' by ')}", *job) for key, job in jobs.items()]
        return dict(zip(jobs, cells.together(listed, WORKERS), strict=True))

    how: dict[str, list[Any]] = {kind: [getattr(setting, kind), setting.train] for kind in NETWORKS}
    nets = made({kind: (partial(network, name, kind, how[kind][0], seed), how[kind]) for kind in NETWORKS})
    files = {kind: cell["network"] for kind, cell in nets.items()}
    judged = made({f"about {kind}": (partial(about, name, files, kind), how[kind]) for kind in CLASSIFIERS})
    kit = Kit(name, setting, files, judged["about spectral"])

    asked = questions(setting, models, images)
    decides = {k: [asdict(a), [how[kind] for kind in (a.kind, *NEEDS.get(a.label, ()))]] for k, a in asked.items()}
    found = made({key: (partial(search, kit, a), decides[key]) for key, a in asked.items()})
    study = Study(kit, asked, found, models)

    jobs: Makes = {"sanity": (partial(sanity, kit, seed), [setting.judged, setting.compared, setting.anogan, how])}
    for label, kind in RUNS:
        key, many = f"{label} {kind} 0", setting.again if label in GREEDY else setting.alone
        job = partial(in_other_company, kit, asked[key], found[key], many)
        jobs[f"again {label} {kind}"] = job, [many, decides[key]]
    for key, pixels in study.to_score.items():
        behind = [decides[k] for k in asked if k.startswith(key)] or [how["vae"], models]
        jobs[f"AnoGAN {key}"] = partial(scored, kit, pixels, seed), [setting.anogan, how["gan"], setting.common, behind]
    more = made(jobs)
    broken = study.violations(more)
    kept(broken)

    result = {"paper": "hoeltgen2021", "dataset": name, "title": setting.title, **study.measured(more)}
    result["accuracy"] = {k: {p: known(judged[f"about {k}"][p]) for p in ("validation", "test")} for k in CLASSIFIERS}
    result |= {
        "jitter": float(kit.density["jitter"]),
        "promises": broken,
        "settings": json.loads(json.dumps(asdict(setting))),
        "pairs": {"all": models * study.each, "common": len(study.common) * models, "sets": models, "images": images,
                  "common images": [k * SETTINGS[name].images + i for k in range(models) for i in setting.common]},
        "models": models,
        "seed": seed,
        "seconds": {
            part: known(sum(float(cell["seconds"]) for cell in cells_.values()), 1)
            for part, cells_ in (("networks", nets | judged), ("searches", found), ("scores and promises", more))
        },
        "version": __version__,
    }  # fmt: skip
    return result | {"findings": findings(result)}


@dataclass(frozen=True)
class Study:
    """Searches that were made, and the figures they come to."""

    kit: Kit
    asked: dict[str, Asked]
    found: dict[str, Arrays]
    sets: int

    @property
    def others(self) -> int:
        """Classes that an image can be turned to."""
        return prepare(self.kit.name).classes - 1

    @property
    def each(self) -> int:
        """Pairs of a set."""
        return len(self.asked["DeDUCE spectral 0"].images) * self.others

    @cached_property
    def common(self) -> Array:
        """Pairs of a set that all methods were asked about, as numbers of its pairs."""
        first = np.array(self.kit.setting.common)[:, None] * self.others
        return (first + np.arange(self.others)).reshape(-1)

    def parts(self, label: str, kind: str) -> list[tuple[Tensor, Arrays]]:
        """Images of the pairs and what was found, set by set."""
        keys = [f"{label} {kind} {k}" for k in range(self.sets)]
        return [(self.asked[key].pairs(self.kit.name), self.found[key]) for key in keys]

    def outcome(self, parts: list[tuple[Tensor, Arrays]], most: int | None) -> Outcome:
        x = np.stack([images.flatten(1).numpy() for images, _ in parts])
        x_cf = np.stack([cell["x_cf"].reshape(len(cell["x_cf"]), -1) for _, cell in parts])
        codes, iterations, confidence = (
            np.stack([cell[key] for _, cell in parts]) for key in ("codes", "iterations", "confidence")
        )
        ok = succeeded(codes, iterations, most)
        return Outcome.of(x, x_cf, ok, iterations=iterations, confidence=confidence)

    def on_test(self, label: str, kind: str) -> Outcome:
        """Of all pairs that a method was asked about."""
        method = greedy(self.asked[f"{label} {kind} 0"])
        return self.outcome(self.parts(label, kind), None if method is None else method.max_iter)

    def answers(self, label: str, kind: str) -> Array:
        """(sets, common pairs, c, h, w)"""
        at = self.common if label in GREEDY else slice(None)
        return np.stack([cell["x_cf"][at] for _, cell in self.parts(label, kind)])

    @cached_property
    def originals(self) -> Tensor:
        """Images that all methods were asked about (sets, images, c, h, w)."""
        task = prepare(self.kit.name)
        return torch.stack([task.test[list(self.asked[f"VLK plain {k}"].images)] for k in range(self.sets)])

    @cached_property
    def to_score(self) -> dict[str, Array]:
        """Images (n, c, h, w) whose realism is scored."""
        x = self.originals.flatten(0, 1)
        out = {f"{label} {kind}": self.answers(label, kind) for label, kind in RUNS}
        out = {key: pixels.reshape(-1, *pixels.shape[2:]) for key, pixels in out.items()}
        return out | {ORIGINALS: x.numpy(), RECONSTRUCTIONS: self.kit.vae.reconstruct(x).numpy()}

    def violations(self, more: dict[str, Arrays]) -> dict[str, Counts]:
        """Broken promises of every search."""
        out, models = dict[str, Counts](), {kind: self.kit.model(kind) for kind in CLASSIFIERS}
        for key, a in self.asked.items():
            method = greedy(a)
            if method is not None:
                out[key] = promises(method, models[a.kind], a.pairs(self.kit.name), self.found[key])
        for label, kind in RUNS:
            cell = more[f"again {label} {kind}"]
            out[f"{label} {kind} again"] = {str(k): int(n) for k, n in zip(cell["names"], cell["counts"], strict=True)}
        return out

    # ---- the tables

    def measured(self, more: dict[str, Arrays]) -> dict[str, Any]:
        scores = {key: more[f"AnoGAN {key}"]["score"].reshape(self.sets, -1) for key in self.to_score}
        on_all = {(m, k): self.on_test(m, k) for m, k in RUNS}
        common = dict[tuple[str, str], Outcome]()
        for (m, k), outcome in on_all.items():
            outcome = outcome.at(self.common) if m in GREEDY else outcome
            common[m, k] = replace(outcome, figures={"AGAN": scores[f"{m} {k}"], **outcome.figures})
        target = np.stack([cell["target"] for _, cell in self.parts("DeDUCE", "spectral")])
        classes = self.others + 1
        return {
            "table 1": {
                what: {
                    "all pairs": both_ways({m: on_all[m, kinds[m]] for m in GREEDY}),
                    "common pairs": both_ways({m: common[m, kinds[m]] for m in METHODS}),
                }
                for what, kinds in KINDS.items()
            },
            "realism of images": {
                key: over_sets(scores[key], np.ones_like(scores[key], bool)) for key in (ORIGINALS, RECONSTRUCTIONS)
            },
            "quantiles": {
                f"{m} {k}": {name: spread(on_all[m, k].of_found(name)) for name in ("L0", "L1", "iterations")}
                | {"AGAN": spread(common[m, k].of_found("AGAN")), "most": int(on_all[m, k].figures["iterations"].max())}
                for m, kinds in GREEDY.items()
                for k in kinds
            },
            "by target": {f"{m} {k}": by_target(on_all[m, k], target, classes) for m, ks in GREEDY.items() for k in ks},
            "table 2": {f"{m} {k}": self._seconds(m, k, more[f"again {m} {k}"]) for m, k in RUNS},
            "table 3": {what: self._pairs(common, kinds) for what, kinds in KINDS.items()},
            "table 4": both_ways({label: self._validated(label) for label in ABLATION}),
            "table 5": both_ways({tuned(*key): self._validated(tuned(*key)) for key in TABLE_5}),
            "auroc": {
                str(score): dict(zip(map(str, more["sanity"]["kinds"]), map(known, row), strict=True))
                for score, row in zip(more["sanity"]["scores"], more["sanity"]["auroc"], strict=True)
            },
            "spread of AnoGAN": known(np.mean([more[f"AnoGAN {key}"]["spread"].mean() for key in self.to_score])),
            "pictured": self._pictured(common),
        }

    def _validated(self, key: str) -> Outcome:
        a = self.asked[key]
        method = greedy(a)
        part = a.pairs(self.kit.name), self.found[key]
        return self.outcome([part], None if method is None else method.max_iter)

    def _seconds(self, label: str, kind: str, again: Arrays) -> dict[str, Any]:
        """CPU seconds of a pair, alone (with the standard deviation over pairs), and in its batch."""
        alone, batch = again["took"], [float(cell["took"]) for _, cell in self.parts(label, kind)]
        sd = known(alone.std(ddof=1)) if len(alone) > 1 else None
        return {"alone": [known(alone.mean()), sd], "pairs alone": len(alone), "in a batch": known(np.mean(batch))}

    def _at(self, image: int, target: int) -> int:
        """The number of a pair of the first set among the common ones."""
        own = int(prepare(self.kit.name).test_y[image])
        return self.kit.setting.common.index(image) * self.others + target - (target > own)

    def _shown(self) -> list[tuple[int, int]]:
        common = self.kit.setting.common
        return [(i, t) for i, t in shown(self.kit.setting, prepare(self.kit.name)) if i in common]

    def _pairs(self, common: dict[tuple[str, str], Outcome], kinds: dict[str, str]) -> dict[str, Any]:
        """Table 3: AGAN, L0 and L1 of some pairs, none where a method failed."""
        out: dict[str, Any] = {"pairs": [[i, int(prepare(self.kit.name).test_y[i]), t] for i, t in self._shown()]}
        for m in METHODS:
            o, places = common[m, kinds[m]], [self._at(i, t) for i, t in self._shown()]
            cells = [[known(o.figures[name][0, p]) for name in ("AGAN", "L0", "L1")] for p in places]
            out[m] = [cell if o.ok[0, p] else None for cell, p in zip(cells, places, strict=True)]
        return out

    def _pictured(self, common: dict[tuple[str, str], Outcome]) -> dict[str, Any]:
        """Boards: the pairs of Table 3 by all methods, and the first image of them to every class."""
        labels, pairs = prepare(self.kit.name).test_y, self._shown()
        if not pairs:
            return {}
        first = self.kit.setting.common

        def cell(m: str, k: str, image: int, target: int) -> tuple[Array, str]:
            o, p = common[m, k], self._at(image, target)
            pixels = self.answers(m, k)[0, p].mean(0)
            return (pixels, f"{int(o.figures['L0'][0, p])} pixels") if o.ok[0, p] else (0 * pixels, FAILED)

        def original(image: int) -> tuple[Array, str]:
            return self.originals[0, first.index(image)].mean(0).numpy(), ""

        out = dict[str, Any]()
        for what, kinds in KINDS.items():
            rows = [[original(i), *(cell(m, kinds[m], i, t) for m in METHODS)] for i, t in pairs]
            names = [f"{labels[i]} → {t}, image {i}" for i, t in pairs]
            out[f"{what}-networks"] = _board(names, ["original", *METHODS], rows)
        image = pairs[0][0]
        targets = [t for t in range(self.others + 1) if t != labels[image]]
        rows = [[original(image), *(cell(m, KINDS["same"][m], image, t) for t in targets)] for m in METHODS]
        out["all-targets"] = _board([*METHODS], ["original", *(f"→ {t}" for t in targets)], rows)
        return out


def _board(rows: list[str], columns: list[str], cells: list[list[tuple[Array, str]]]) -> dict[str, Any]:
    images = np.stack([[pixels for pixels, _ in row] for row in cells])
    return stored(rows, columns, images, [[told for _, told in row] for row in cells])
