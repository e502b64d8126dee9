"""The page of questions: every one has an answer, and its code runs, one snippet after the other."""

import re
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_limits

torch.set_num_threads(1)
PAGE = (Path(__file__).parent.parent / "docs/faq.md").read_text(encoding="utf-8")
START, *SECTIONS = re.split(r"^### ", PAGE, flags=re.MULTILINE)


def snippets(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_questions_are_numbered_and_answered_with_code() -> None:
    assert [int(s.split(".")[0]) for s in SECTIONS] == list(range(1, len(SECTIONS) + 1))
    assert len(SECTIONS) >= 33
    for section in SECTIONS:
        assert snippets(section), section.splitlines()[0]


def test_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "faq"}
    with threadpool_limits(1):  # threads that wait for one another on a busy machine take minutes
        for text in (START, *SECTIONS):
            for code in snippets(text):
                exec(compile(code, f"faq: {text.splitlines()[0]}", "exec"), space)
