"""The rows of the tables: which methods, under which settings, and what the paper calls them.

Nothing here was chosen by us on the rows that are reported: settings are the paper's Tables 4 and
5, the class's own defaults, or the one difference that the title of a row tells.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import holdfast as hf
from holdfast.methods.amortized._generator_loop import GeneratorKind
from holdfast.methods.amortized._joint_settings import JointSettings

BASE = "base"
PRINTED = "printed"
# On the loans, VAE-CF with all of the paper's samples would take more than a day.
VAE_ON_LOANS = {"samples": 5, "epochs": 10}


@dataclass(frozen=True)
class Row:
    """One row of the tables.

    Args:
        group: its name in those of cells.
        title: what pages call it.
        reported: its name in the paper's tables; "" where it has none.
    """

    group: str
    title: str
    reported: str = ""


ROWS = (
    Row(PRINTED, "RoCourseNet as printed (`RoCourseNet.paper`)", "RoCourseNet"),
    Row("counternet", "CounterNet (`CounterNet.paper`)", "CounterNet"),
    Row("adam", "RoCourseNet, Adam inner loop, categories kept"),
    Row("softmax", "RoCourseNet, Adam inner loop, softmax over categories (authors' code)"),
    Row("random", "RoCourseNet-Random", "RoCourseNet-Random"),
    Row("defaults", "`hf.RoCourseNet()`"),
    Row("plain-defaults", "`hf.CounterNet()`"),
    Row("vanilla", "VanillaCF", "VanillaCF"),
    Row("vanilla-random", "VanillaCF-Random", "VanillaCF-Random"),
    Row("roar-lime", "ROAR-LIME", "ROAR-LIME"),
    Row("rbr", "RBR", "RBR"),
    Row("cf-model", "CF Model", "CF Model"),
    Row("robust-cf-model", "Robust CF Model", "Robust CF Model"),
    Row("vae-cf", "VAE-CF", "VAE-CF"),
    Row("robust-vae-cf", "Robust VAE-CF", "Robust VAE-CF"),
)
TITLES = {row.group: row.title for row in ROWS} | {BASE: "network that only predicts"}


def networks(dataset: str) -> dict[str, JointSettings]:
    """Those that predict and give recourse."""
    printed = hf.RoCourseNet.paper(dataset)
    assert printed.shift is not None
    adam = replace(printed.shift, optimizer="adam", categories="none")
    return {
        PRINTED: printed,
        "counternet": hf.CounterNet.paper(dataset),
        "adam": replace(printed, shift=adam),
        "softmax": replace(printed, shift=replace(adam, categories="softmax")),
        "random": replace(printed, shift=replace(printed.shift, ascend=False)),
        "defaults": hf.RoCourseNet(),
        "plain-defaults": hf.CounterNet(),
    }


def base(dataset: str) -> JointSettings:
    """Networks of the same layers that only predict, for methods that need a model."""
    return hf.CounterNet.paper(dataset, l2=0.0, l3=0.0, loss="entropy", smooth_labels=True)


def generators(dataset: str) -> dict[str, GeneratorKind]:
    """Table 3: each plain, and trained against the paper's attack."""
    how = hf.RoCourseNet.paper(dataset)
    loop: dict[str, Any] = {"epochs": how.epochs, "batch_size": how.batch_size, "lr": how.lr}
    hidden = (*how.encoder, *how.generator)
    direct = hf.CFModel(hidden=hidden, dropout=how.dropout, l2=how.l2, l3=how.l3, **loop)
    fewer = VAE_ON_LOANS if dataset == "sba_loan" else {}
    variational = hf.VAECF(**cast(Any, {"samples": 50} | loop | fewer))
    return {
        "cf-model": direct,
        "robust-cf-model": replace(direct, shift=how.shift),
        "vae-cf": variational,
        "robust-vae-cf": replace(variational, shift=how.shift),
    }


def searches() -> dict[str, Callable[[], hf.Explainer]]:
    """Methods that search anew for every row."""
    return {
        "vanilla": hf.Descent.vanilla,
        "vanilla-random": hf.Descent.vanilla,
        "roar-lime": hf.ROAR.lime,
        # the paper looks for the boundary between the levels of categories too
        "rbr": lambda: hf.RBR(relaxed=True),
    }
