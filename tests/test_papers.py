"""Every element of the papers has its code and its test, or a reason; and the check would notice if
not."""

import re
from collections import defaultdict
from dataclasses import replace

import pytest

from docs.generator.papers import (
    HOMES,
    TESTS,
    ElementList,
    Mark,
    all_lists,
    marked,
    marks,
    marks_in,
    problems,
)

NUMBERED = re.compile(
    r"(Definition|Theorem|Lemma|Proposition|Algorithm|Eq\.|Table|Figure)"
    r" ([A-C]?)(\d+)[a-z]?(?: to (\d+))?"
)
LISTED = ElementList(
    name="doe2020",
    title="Title",
    cited="Doe, 2020",
    elements={"Eq. 1": "one", "Eq. 2": "two", "Table 1": "all"},
    differs={},
    not_here={},
    not_tested={},
)
HERE = [Mark("doe2020", name, "src/a.py", "f") for name in LISTED.elements]
TESTED = [Mark("doe2020", name, "tests/test_a.py", "test_f") for name in ("Eq. 1", "Eq. 2")]


def test_every_element_of_the_papers_has_its_code_and_its_test_or_a_reason() -> None:
    assert problems(all_lists(), marks(HOMES), marks(TESTS)) == []


def test_every_paper_has_its_equations_and_figures_or_tables() -> None:
    for paper in all_lists():
        kinds = {name.split()[0] for name in paper.elements}
        assert {"Eq.", "Metric", "Figure"} <= kinds, paper.name


@pytest.mark.parametrize("paper", all_lists(), ids=lambda paper: paper.name)
def test_no_number_of_a_paper_is_left_out(paper: ElementList) -> None:
    """Equations, theorems, tables, .. are counted from 1."""
    numbers = defaultdict[str, set[int]](set)
    for name in paper.elements:
        found = NUMBERED.fullmatch(name)
        if found:
            first = int(found[3])
            numbers[f"{found[1]} {found[2]}"] |= set(range(first, int(found[4] or first) + 1))
    assert numbers
    for kind, some in numbers.items():
        assert some == set(range(1, max(some) + 1)), kind


def test_what_checks_an_element_is_a_test() -> None:
    for mark in marks(TESTS):
        assert mark.name.rpartition(".")[2].startswith("test_"), mark.place


def test_lists_and_marks_that_agree() -> None:
    assert problems([LISTED], HERE, TESTED) == []


def test_an_element_without_code_needs_a_reason() -> None:
    assert problems([LISTED], HERE[1:], TESTED) == ["doe2020 Eq. 1 has no home and no reason"]
    excused = replace(LISTED, not_here={"Eq. 1": "because"})
    assert problems([excused], HERE[1:], TESTED) == []


def test_an_element_without_a_test_needs_a_reason() -> None:
    assert problems([LISTED], HERE, TESTED[1:]) == ["doe2020 Eq. 1 has no test and no reason"]
    excused = replace(LISTED, not_tested={"Eq. 1": "because"})
    assert problems([excused], HERE, TESTED[1:]) == []


def test_reasons_go_when_they_are_no_longer_true() -> None:
    late = replace(LISTED, not_here={"Eq. 1": "because"})
    assert problems([late], HERE, TESTED) == ["doe2020 Eq. 1 is here, and is said not to be"]
    late = replace(LISTED, not_tested={"Eq. 1": "because"})
    assert problems([late], HERE, TESTED) == ["doe2020 Eq. 1 is tested, and is said not to be"]
    late = replace(LISTED, not_here={"Eq. 9": "because"})
    assert problems([late], HERE, TESTED) == ["doe2020 Eq. 9 has a reason and is not listed"]


def test_only_what_is_here_can_differ() -> None:
    other = replace(LISTED, differs={"Eq. 1": "larger"})
    assert problems([other], HERE, TESTED) == []
    assert problems([other], HERE[1:], TESTED) == ["doe2020 Eq. 1 differs, and has no home"]


@pytest.mark.parametrize(("paper", "element"), [("doe2020", "Eq. 3"), ("roe2021", "Eq. 1")])
def test_a_mark_names_what_is_listed(paper: str, element: str) -> None:
    stray = Mark(paper, element, "src/b.py", "A.g")
    (words,) = problems([LISTED], [*HERE, stray], TESTED)
    assert words == f"src/b.py: A.g names {paper} {element}, which is not listed"


def test_marks_are_the_last_paragraph_of_a_docstring() -> None:
    text = "What it is.\n\n    Paper: doe2020 Eq. 1, Table 2;\n    roe2021 Definition 3.1.\n    "
    assert marked(text) == [
        ("doe2020", "Eq. 1"),
        ("doe2020", "Table 2"),
        ("roe2021", "Definition 3.1"),
    ]
    assert marked("What it is.") == marked("") == []


@pytest.mark.parametrize(
    "text", ["Paper: doe2020 Eq. 1", "What it is.\n\nPaper: doe2020 Eq. 1.\n\nAnd more."]
)
def test_a_mark_that_would_be_overlooked_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        marked(text)


def test_modules_classes_methods_and_functions_have_marks() -> None:
    text = '''"""Paper: doe2020 Eq. 1."""
class A:
    """Paper: doe2020 Eq. 2."""
    def f(self):
        """Paper: doe2020 Eq. 3."""
def g():
    """Nothing."""
'''
    found = {mark.element: mark.name for mark in marks_in(text, "a.py")}
    assert found == {"Eq. 1": "", "Eq. 2": "A", "Eq. 3": "A.f"}
