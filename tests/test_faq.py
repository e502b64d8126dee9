"""The page of questions: every one has an answer, and its code runs, one snippet after the other."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs/faq.md").read_text(encoding="utf-8")
START, *SECTIONS = re.split(r"^### ", PAGE, flags=re.MULTILINE)


def snippets(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_questions_are_numbered_and_answered_with_code() -> None:
    assert [int(s.split(".")[0]) for s in SECTIONS] == list(range(1, len(SECTIONS) + 1))
    assert len(SECTIONS) >= 25
    for section in SECTIONS:
        assert snippets(section) or "README" in section, section.splitlines()[0]


def test_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for text in (START, *SECTIONS):
        for code in snippets(text):
            exec(compile(code, f"faq: {text.splitlines()[0]}", "exec"), space)
