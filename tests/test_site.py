"""The documents: their code runs, the site builds strictly and without network, what is generated
is current."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import types
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import torch
import yaml

import holdfast as hf
import test_laws
from docs.generator import __main__ as generator
from docs.generator import api, examples, methods
from holdfast import registry
from support.documents import ROOT, blocks, run_page
from support.law_table import EXPLAINERS

torch.set_num_threads(1)
MOST_COLUMNS_OF_CODE = 88
KEPT = [str(path.relative_to(ROOT)) for path in generator.pages()]
WITH_CODE = [
    name
    for name in [*KEPT, "CONTRIBUTING.md"]
    if any(
        b.language in ("python", "console")
        for b in blocks((ROOT / name).read_text(encoding="utf-8"))
    )
]


# ---- code


@pytest.mark.parametrize("name", WITH_CODE)
def test_the_code_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "docs/examples/drift.md" and "HOLDFAST_DATA" not in os.environ:
        # its page shows what the real loans print
        examples.run((ROOT / name).with_suffix(".py").read_text(encoding="utf-8"))
    else:
        run_page(name)


def test_all_pages_have_code_but_those_that_are_about_something_else() -> None:
    prose = {
        "docs/architecture.md",
        "docs/benchmarks.md",
        "docs/examples/index.md",
        "docs/glossary.md",
        "docs/reproductions/results.md",
    }
    # their examples are docstrings, see test_docstrings
    generated = {f"docs/{m.page}" for m in methods.methods()}
    assert set(KEPT) - set(WITH_CODE) - generated == prose


def test_the_readme_is_one_page_with_its_example_and_output() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    first, *_ = blocks(text)
    assert first.language == "python"
    assert "hf.Recourse(" in first.code
    assert first.shown is not None


def test_code_fits_the_column_of_the_site() -> None:
    """Examples of methods are docstrings, whose lines are as long as those of the library."""
    long = [
        f"{page.relative_to(ROOT)}:{block.line} {line}"
        for page in (ROOT / "docs").rglob("*.md")
        # signatures in the generated pages of the API are as long as they are
        if page.parent.name != "api"
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language != "pycon"
        for line in block.code.splitlines()
        if len(line) > MOST_COLUMNS_OF_CODE
    ]
    assert long == []


def test_the_readme_tells_of_the_demo_what_it_did() -> None:
    """The figures were written down together with the picture of its page."""
    figures = json.loads((ROOT / "docs/pictures/demo.json").read_text(encoding="utf-8"))
    told = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    held = re.match(r"Smallest changes hold on ([\d.]+)% of (\d+) ", figures["smallest changes"])
    assert held is not None
    assert f"{held[2]} of these models had no part in the search" in told
    assert f"Of the {figures['people']} test applicants" in told
    assert f"{figures['certified plans']} get a [certified]" in told
    assert f"hold on {float(held[1]):.0f} % of the judges, and none of them is certified" in told
    assert re.search(r"; 0 of \d+ are certified", figures["smallest changes"])


def test_pictures_are_small() -> None:
    large = {"disagreement.png", "paths.png"}  # maps of two networks, pixel by pixel
    for folder in ("docs/pictures", "docs/examples"):
        for picture in [*(ROOT / folder).glob("*.png"), *(ROOT / folder).glob("*.svg")]:
            assert picture.name in large or picture.stat().st_size <= 100_000, picture


@pytest.mark.parametrize("script", examples.scripts(), ids=lambda script: script.stem)
def test_the_page_of_an_example_is_its_script(script: Path) -> None:
    """Its code and what that prints are run as those of all pages are."""
    text = script.read_text(encoding="utf-8")
    shown = script.with_suffix(".md").read_text(encoding="utf-8")
    printed = [block.shown or "" for block in blocks(shown) if block.language == "python"]
    assert shown == examples.page(text, printed), "run `make examples`"
    pictures = re.findall(r"!\[[^\]]+\]\((\S+)\)", shown)
    assert pictures
    for picture in pictures:
        assert (script.parent / picture).exists()
        assert f"]({picture}){{" in (ROOT / "docs/examples/index.md").read_text(encoding="utf-8")


def test_questions_are_numbered_and_answered_with_code() -> None:
    text = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    _, *questions = text.split("\n### ")
    assert [int(q.split(".")[0]) for q in questions] == list(range(1, len(questions) + 1))
    assert len(questions) >= 33
    for question in questions:
        assert any(b.language == "python" for b in blocks(question)), question.splitlines()[0]


def test_the_added_method_is_lawful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's file, its registry line and its law-table line, and nothing else."""
    page = (ROOT / "docs/add-a-method.md").read_text(encoding="utf-8")
    file, *_ = [b.code for b in blocks(page) if b.language == "python"]
    assert len(file.splitlines()) <= 60
    monkeypatch.chdir(tmp_path)
    space = run_page("docs/add-a-method.md")
    ((name, (place, cls)),) = space["registry_line"].items()
    module = types.ModuleType(place, file)
    setattr(module, cls, space[cls])
    space[cls].__module__ = place
    monkeypatch.setitem(sys.modules, place, module)
    monkeypatch.setitem(registry.METHODS, name, (place, cls))
    monkeypatch.setitem(EXPLAINERS, name, space["law_line"][name])

    assert hf.list_methods()[name] is getattr(hf, cls) is space[cls]
    assert registry.build_method(name, ["length=0.3"]).get_params()["length"] == 0.3
    (added,) = [m for m in methods.methods() if m.name == name]
    text = methods.page(added)
    for part in (
        "z_{k+1} = z_k + length",
        "| `length` (`float`) | `0.1` |",
        "## When to use it",
        "## Cost",
    ):
        assert part in text
    laws = [
        law
        for law in vars(test_laws).values()
        if getattr(law, "pytestmark", None) == [test_laws.every.mark]
        and law.__code__.co_argcount == 2
    ]
    assert len(laws) >= 5
    for law in laws:
        for model in ("two-logit", "multi-class", "logistic"):
            law(name, model)


# ---- generated parts


def test_what_is_generated_is_current() -> None:
    assert generator.out_of_date() == [], "run `make docs`"


def test_every_method_is_in_the_tables_with_its_own_words() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[{len(methods.methods())} methods](docs/methods/index.md)" in readme
    index = (ROOT / "docs/methods/index.md").read_text(encoding="utf-8")
    found = methods.methods()
    assert len(found) == len(registry.METHODS) + len(registry.IMAGE_METHODS)
    for m in found:
        assert f"| {m.cls.title} | {m.cls.paper} |" in index
        page = (ROOT / "docs" / m.page).read_text(encoding="utf-8")
        assert page.startswith(f"# {m.cls.__name__}\n")


def test_every_setting_of_every_method_is_explained() -> None:
    for m in methods.methods():
        page = (ROOT / "docs" / m.page).read_text(encoding="utf-8")
        for line in page.split("## Settings")[1].split("\n## ")[0].splitlines():
            assert not line.endswith("|  |"), f"{m.name}: {line}"


def test_every_method_says_when_to_use_it_and_what_it_costs() -> None:
    for m in methods.methods():
        page = (ROOT / "docs" / m.page).read_text(encoding="utf-8")
        for part in (
            "## How it works",
            "## When to use it",
            "## Cost",
            "## Settings",
            "## Example",
        ):
            assert part in page, f"{m.name} has no part {part!r}"


def test_the_architecture_says_what_the_contract_says() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]
    layers = [
        [room.strip() for room in line.split("|")] for line in contract["contracts"][0]["layers"]
    ]
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    told = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert told == [room for layer in reversed(layers) for room in layer]
    picture = (ROOT / "docs/pictures/architecture.svg").read_text(encoding="utf-8")
    assert re.findall(r'class="room">(\w+)<', picture) == [
        room for layer in layers for room in layer
    ]
    tree = {
        p.stem
        for p in (ROOT / "src/holdfast").iterdir()
        if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert tree - {"__init__", "__main__"} == set(told)


def test_the_api_has_every_public_name() -> None:
    named = {name for names in api.rooms().values() for name in names}
    assert {f"hf.{name}" for name in hf.__all__} - named == {"hf.__version__", "hf.images"}
    for name in hf.images.__all__:
        assert {f"hf.{name}", f"hf.images.{name}"} & named, name


def test_the_navigation_has_every_page() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = set[str]()

    def walk(part: object) -> None:
        if isinstance(part, str):
            listed.add(part)
        for inner in (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        ):
            walk(inner)

    walk(config["nav"])
    pages = {name.removeprefix("docs/") for name in KEPT if name.startswith("docs/")} | set(
        api.pages()
    )
    assert listed == pages | {f"reproductions/{paper}/index.md" for paper in generator.PAPERS}


# ---- the site


class Page(HTMLParser):
    """The links, the anchors and what is loaded of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links = list[str]()
        self.anchors = set[str]()
        self.loaded = list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if anchor := found.get("id"):
            self.anchors.add(anchor)
        if tag == "a" and (link := found.get("href")):
            self.links.append(link)
        if tag in ("script", "img", "iframe", "link", "source"):
            self.loaded += [value for key in ("src", "href") if (value := found.get(key))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does, in a directory of its own."""
    room = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", room)
    shutil.copytree(
        ROOT / "docs", room / "docs", ignore=shutil.ignore_patterns("api", "__pycache__")
    )
    generator.write_site_pages(room / "docs")
    program = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(program, cwd=room, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stdout + built.stderr
    return room / "site"


def test_the_site_builds_strictly_and_its_links_lead_somewhere(site: Path) -> None:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 60
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            target, anchor = urldefrag(unquote(link))
            assert not target.startswith(("http:", "https:")), f"{path.name} links to {link}"
            place = (path.parent / target).resolve() if target else path
            place = place / "index.html" if place.is_dir() else place
            assert place.exists(), f"{path.name} links to {link}"
            assert not anchor or place not in pages or anchor in pages[place].anchors, (
                f"{path.name} links to {link}"
            )


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        for address in Page(path.read_text(encoding="utf-8")).loaded:
            assert not address.startswith(("http:", "https:", "//")), f"{path.name} loads {address}"
    for path in site.rglob("*.css"):
        assert "url(http" not in path.read_text(encoding="utf-8")
