import subprocess
import sys
from typing import Any

import pytest

import holdfast as hf
from holdfast.registry import list_image_methods


def loaded_after(code: str) -> set[str]:
    """The top-level modules in a fresh interpreter after running the code."""
    script = f"import sys\n{code}\nprint(*{{m.partition('.')[0] for m in sys.modules}})"
    return set(
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_import_is_light() -> None:
    heavy = {"torch", "pandas", "sklearn", "altair", "rich", "typer", "jinja2", "pyarrow", "numpy"}
    assert not loaded_after("import holdfast") & heavy
    assert not loaded_after("import holdfast; holdfast.Descent") & {
        "sklearn",
        "altair",
        "typer",
        "jinja2",
        "rich",
    }


def test_every_public_name_exists() -> None:
    for name in hf.__all__:
        assert getattr(hf, name) is not None, name
    assert set(dir(hf)) >= set(hf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Descnt'"):
        _ = hf.Descnt


def test_unfitted_and_unknown_settings_are_clear() -> None:
    import torch

    model = hf.Model.of(torch.nn.Linear(3, 2), hf.Schema.box(3))
    x = torch.zeros(1, 3)
    with pytest.raises(hf.HoldfastError, match=r"call .fit"):
        hf.NearestNeighbor().explain(model, x, 1)
    with pytest.raises(TypeError):
        hf.Descent(lambda_=3)
    with pytest.raises(hf.HoldfastError, match="did you mean 'steps'"):
        hf.Descent().set_params(step=3)
    assert hf.Descent().set_params(steps=7).steps == 7
    for wrong in (
        hf.Descent(lam=-1),
        hf.Descent(steps=0),
        hf.Descent(norm=3),
        hf.Descent(optimizer="newton"),
        hf.MinCost(norm=3),
        hf.MinEpsilonPGD(radius=-1.0),
        hf.GrowingSpheres(samples=0),
        hf.GrowingSpheres(variant="other"),
        hf.NearestNeighbor(n_counterfactuals=0).fit(model, x),
        hf.TreeSearch(norm=2),
        hf.TreeSearch(beam=0),
        hf.TreeSearch(max_nodes=-1),
        hf.TreeSearch(thresholds=1),
    ):
        with pytest.raises(hf.HoldfastError):
            wrong.explain(model, x, 1)
    with pytest.raises(hf.HoldfastError, match="batch_size"):
        hf.Descent().explain(model, x, 1, batch_size=0)
    with pytest.raises(hf.HoldfastError, match="time_budget"):
        hf.Descent().explain(model, x, 1, time_budget=-1)
    with pytest.raises(hf.HoldfastError, match=r"hf.Model.of"):
        hf.Descent().explain(torch.nn.Linear(3, 2), x, 1)
    with pytest.raises(hf.HoldfastError, match="DataFrame"):
        hf.Descent().explain(model, [[0.0, 0.0, 0.0]], 1)


def test_method_lists() -> None:
    """What is known of the methods so far; a new one need not be named here."""
    blind = {
        "growing-spheres",
        "nearest-neighbor",
        "tree-search",
        "omniscient",
        "latent-search",
        "cchvae",
        "roar",
        "rbr",
    }
    alone = {
        "descent",
        "min-cost",
        "min-epsilon-pgd",
        "eccco",
        "claproar",
        "stable-neighbor-search",
        "learned-recourse",
    }
    fitted = {
        "nearest-neighbor",
        "omniscient",
        "latent-search",
        "cchvae",
        "revise",
        "gravitational",
        "prototype",
        "roar",
    }
    fitted |= {"rbr", "cf-model", "vae-cf"}
    assert set(hf.list_methods(gradients=False)) >= blind
    assert set(hf.list_methods(gradients=True)) >= alone | fitted - blind
    assert set(hf.list_methods(data=True)) >= fitted
    assert set(hf.list_methods(data=False)) >= alone | blind - fitted
    assert set(hf.list_methods(gradients=False)) | set(hf.list_methods(gradients=True)) == set(
        hf.list_methods()
    )


@pytest.mark.parametrize("cls", [*hf.list_methods().values(), *list_image_methods().values()])
def test_a_method_says_what_it_is(cls: Any) -> None:
    for said in (cls.title, cls.paper, cls.when, cls.cost, cls.advice):
        assert said
        assert not said.endswith(".")
    doc = cls.__doc__
    parts = [doc.index(part) for part in ("Args:", "Example:", "Reference:") if part in doc]
    assert parts == sorted(parts)
