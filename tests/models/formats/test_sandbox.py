"""What a file does to a child process is a refusal here; formats that compiled code reads go
through one."""

import sys
from pathlib import Path

import pytest
import skops.io
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.errors import FileError, UnsafeFileError
from holdfast.models.formats import limits, sandbox
from holdfast.models.formats.onnx.graph import MOST_NODES
from support.model_files import L_TEXT, SCHEMA, TABLE, TWO, X_JSON, X_UBJ

FILES = {
    "m.skops": skops.io.dumps(DecisionTreeClassifier(max_depth=2).fit(TABLE, TWO)),
    "m.json": X_JSON,
    "m.ubj": X_UBJ,
    "m.txt": L_TEXT.encode(),
}
# What a hostile file could make of a compiled reader, put in its place in the child.
WRECKS = {
    "crash": ("import os; os.abort()", r"crashed a child process \(SIGABRT\), so it is refused"),
    "memory": ("bytearray(1 << 40)", "failed in a child process, so it is refused: MemoryError"),
    "loop": ("while True: pass", r"crashed a child process \(SIG(XCPU|KILL)\), so it is refused"),
    "exit": ("import os; os._exit(7)", "failed in a child process"),
    "write": (
        "import pathlib; pathlib.Path('written').write_text('x')",
        "failed in a child process.*too large",
    ),
}


def write(folder: Path, name: str) -> Path:
    (folder / name).write_bytes(FILES[name])
    return folder / name


@pytest.mark.parametrize("name", FILES)
def test_files_load_through_a_child_process(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[str]()
    run = sandbox.run_child
    monkeypatch.setattr(
        sandbox, "run_child", lambda program, data: (run(program, data), tried.append(program))
    )
    model = hf.Model.load(write(tmp_path, name), SCHEMA)
    assert len(tried) == 1
    assert model.classes == (0, 1)
    assert set(model.predict(TABLE)) == {0, 1}
    hf.Model.load(tmp_path / name, SCHEMA, trust=True)
    assert len(tried) == 1  # files of one's own go straight to the library


@pytest.mark.parametrize("wreck", WRECKS)
@pytest.mark.parametrize("name", ["m.skops", "m.json", "m.txt"])
def test_a_file_that_wrecks_the_child_is_refused(
    name: str, wreck: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = WRECKS[wreck]
    (tmp_path / "wrecked.py").write_text(f"def try_out(data):\n    {code}\n")
    program = (
        "from holdfast.models.formats import sandbox\n"
        "sandbox.CPU_SECONDS = 1; sandbox.READERS['skops'] = ('wrecked', 'json'); "
        "sandbox.main('skops')"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    run = sandbox.run_child
    monkeypatch.setattr(sandbox, "run_child", lambda _, data: run(program, data))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=words):
        hf.Model.load(write(tmp_path, name), SCHEMA)


def test_what_a_child_process_does_wrong_is_a_refusal() -> None:
    for program, error, words in (
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", FileError, "SIGSEGV"),
        ("raise MemoryError('too much')", FileError, "MemoryError"),
        ("import sys; print('wild'); sys.exit(3)", FileError, "wild"),
        ("import sys; print('unsafe'); sys.exit(4)", UnsafeFileError, "unsafe"),
    ):
        with pytest.raises(error, match=words):
            sandbox.run_child(program, b"")
    with pytest.raises(FileError, match=r"more than 0\.2 s"):
        sandbox.run_child("import time; time.sleep(30)", b"", timeout=0.2)
    sandbox.run_child("import sys; assert sys.stdin.buffer.read() == b'abc'", b"abc")


def test_many_models_are_tried_in_one_child(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.try_all_in_child([])
    with pytest.raises(FileError, match="XGBoost cannot read the file"):
        sandbox.try_all_in_child(
            [("xgboost", b'{"learner": {"objective": {"name": "binary:logistic"}}}')]
        )
    limits_of = dict[str, int]()
    monkeypatch.setattr(
        sandbox, "_limit", lambda size, seconds: limits_of.update(size=size, seconds=seconds)
    )
    monkeypatch.setitem(sandbox.READERS, "skops", ("json", "json"))
    monkeypatch.setattr("json.try_out", lambda data: None, raising=False)
    sandbox._try_out([("skops", b"12")] * (sandbox.AT_ONCE + 1))
    assert limits_of == {"size": 2 * (sandbox.AT_ONCE + 1), "seconds": 2 * sandbox.CPU_SECONDS}


def test_the_threat_model_is_true() -> None:
    text = (Path(__file__).parents[3] / "SECURITY.md").read_text("utf-8")
    seconds = f"{sandbox.CPU_SECONDS} s of processor time, {sandbox.TIMEOUT} s"
    memory = f"{sandbox.MEMORY >> 30} GiB"
    assert seconds in text
    assert f"{memory} of address space" in text
    for words in (
        f"{limits.MOST_ENTRIES:,} entries",
        f"{limits.MOST_BYTES >> 30} GiB",
        f"{MOST_NODES:,} operators",
    ):
        assert words in text
    tried = [
        line.split("|")[1].split()[0].lower()
        for line in text.splitlines()
        if line.endswith("| yes |")
    ]
    assert tried == list(sandbox.READERS)
