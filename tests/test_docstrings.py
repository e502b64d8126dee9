"""Every public name has a docstring with an example, and every example of the library runs."""

import doctest
import importlib
import inspect
import os
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_limits

import holdfast as hf
from docs.generator.docstrings import parse

torch.set_num_threads(1)
PUBLIC = {f"hf.{name}": name for name in hf.__all__ if name != "__version__"}
PUBLIC |= {f"hf.images.{name}": f"images.{name}" for name in hf.images.__all__}


def public(name: str) -> Any:
    found: Any = hf
    for part in PUBLIC[name].split("."):
        found = getattr(found, part)
    return found


def modules() -> list[str]:
    """Modules of the library with an example in some docstring."""
    names = [
        m.name
        for m in pkgutil.walk_packages(hf.__path__, "holdfast.")
        if m.name != "holdfast.__main__"
    ]
    files = {name: importlib.util.find_spec(name) for name in names}
    return [
        name
        for name, spec in files.items()
        if spec and spec.origin and ">>>" in Path(spec.origin).read_text("utf-8")
    ]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    found = public(name)
    doc = parse(found.__doc__)
    assert doc.summary.endswith((".", ":", "?")), f"{name} has no sentence"
    has = bool(doc.examples)
    if inspect.ismodule(found):  # the examples of its functions will do
        members = [
            getattr(found, name)
            for name in getattr(found, "__all__", dir(found))
            if not name.startswith("_")
        ]
        own = [m for m in members if getattr(m, "__module__", "").startswith(found.__name__)]
        has = has or any(parse(m.__doc__).examples for m in own)
    assert has, f"{name} has no example"


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_documented_argument_is_there(name: str) -> None:
    """What Args names is an argument; a function that takes any keyword may name more."""
    found = public(name)
    functions = [found] if inspect.isroutine(found) else []
    if inspect.isclass(found):
        functions = [
            found,
            *(m for k, m in inspect.getmembers(found, inspect.isroutine) if not k.startswith("_")),
        ]
    for function in functions:
        args = parse(function.__doc__).args
        if not args or not getattr(function, "__module__", "").startswith("holdfast"):
            continue
        known = inspect.signature(function).parameters
        if any(p.kind is p.VAR_KEYWORD for p in known.values()):
            continue
        named = {part for names in args for part in names.split(", ")}
        fields = (
            set(getattr(function, "__annotations__", {}))
            if inspect.isclass(function)
            else set[str]()
        )
        for base in function.__mro__ if inspect.isclass(function) else ():
            fields |= set(vars(base).get("__annotations__", {}))
        assert named <= set(known) | fields, f"{name}: {sorted(named - set(known) - fields)}"


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_a_module_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    module = importlib.import_module(name)
    with threadpool_limits(1):
        runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
        for example in doctest.DocTestFinder(recurse=True).find(module, name):
            if example.examples:
                report = list[str]()
                runner.run(example, out=report.append, clear_globs=True)
                assert not report, "".join(report)
    assert os.getcwd() == str(tmp_path)
