"""Parts survive a kill, and are others with other contents."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from experiments.parts import Job, OutOfTime, Parts

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}  # `experiments` is not installed

SLOW_CELLS = """
import sys, time
from pathlib import Path
import numpy as np
from experiments.parts import Parts
cells = Parts(Path(sys.argv[1]), {"a": 1})
for i in range(6):
    def make():
        Path(sys.argv[1], f"made-{i}").open("a").write("x")
        time.sleep(0.05 if i < 3 else 60 * (sys.argv[2] == "slow"))
        return {"value": np.arange(i + 1)}
    cells.arrays(f"cell {i}", make)
"""


def test_kill_9_loses_at_most_the_current_cell(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW_CELLS, str(tmp_path)]
    first = subprocess.Popen([*command, "slow"], env=ENVIRONMENT)
    until((tmp_path / "made-3").exists)  # the fourth cell is being made
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert len(list(tmp_path.glob("*.npz"))) == 3
    subprocess.run([*command, "quick"], check=True, env=ENVIRONMENT)
    made = {i: (tmp_path / f"made-{i}").read_text() for i in range(6)}
    assert made == {0: "x", 1: "x", 2: "x", 3: "xx", 4: "x", 5: "x"}
    again = Parts(tmp_path, {"a": 1}).arrays("cell 2", lambda: pytest.fail("the cell is there"))
    assert again["value"].tolist() == [0, 1, 2]
    assert float(again["seconds"]) >= 0.05


SLOW_WORKERS = """
import os, sys, time
from functools import partial
from pathlib import Path
from experiments.parts import Parts

def make(path):
    path.write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    jobs = [(f"cell {i}", partial(make, Path(sys.argv[1], f"pid-{i}")), None) for i in range(2)]
    Parts(Path(sys.argv[1]), {}, workers=2).together(jobs)
"""


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW_WORKERS)
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=ENVIRONMENT)
    files = [tmp_path / f"pid-{i}" for i in range(2)]
    until(lambda: all(f.exists() and f.read_text() for f in files))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    workers = [int(f.read_text()) for f in files]
    until(lambda: not any(running(pid) for pid in workers))
    assert not any(running(pid) for pid in workers)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        " Z " not in Path(f"/proc/{pid}/stat").read_text()
        if Path(f"/proc/{pid}/stat").exists()
        else False
    )


def until(done: Callable[[], bool]) -> None:
    for _ in range(600):
        if done():
            return
        time.sleep(0.1)


def test_other_settings_are_other_cells_and_half_a_file_is_none(tmp_path: Path) -> None:
    def fail() -> dict[str, np.ndarray]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Parts(tmp_path, {}).arrays("x", fail)
    assert not list(tmp_path.iterdir())
    one = Parts(tmp_path, {"rows": 1}).arrays("x", lambda: {"n": np.array(1)})
    two = Parts(tmp_path, {"rows": 2}).arrays("x", lambda: {"n": np.array(2)})
    assert (int(one["n"]), int(two["n"])) == (1, 2)
    assert len(list(tmp_path.glob("*.npz"))) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_cells_can_be_made_in_processes_of_their_own(workers: int, tmp_path: Path) -> None:
    reported = list[str]()
    cells = Parts(tmp_path, {}, reported.append, workers)
    names = ["cell 0", "cell 1", "cell 2/3"]
    jobs: list[Job] = [(name, partial(dict, n=np.array(i)), None) for i, name in enumerate(names)]
    made = cells.together(jobs)
    assert list(made) == names
    assert [int(cell["n"]) for cell in made.values()] == [0, 1, 2]
    assert sorted(reported) == names
    again: list[Job] = [(name, partial(pytest.fail, "the cell is there"), None) for name in names]
    assert [int(cell["n"]) for cell in cells.together(again).values()] == [0, 1, 2]
    assert sorted(reported) == names  # nothing was made


def test_seconds_are_those_of_the_cells_that_were_asked_for(tmp_path: Path) -> None:
    """Whenever they were made; cells with one name are added up, and each counts once."""
    for part in (1, 2):
        Parts(tmp_path, {}).arrays("curve", lambda: time.sleep(0.1) or {}, part)
    cells = Parts(tmp_path, {})
    assert cells.seconds() == {}
    for part in (1, 2, 1):
        cells.arrays("curve", lambda: pytest.fail("the cell is there"), part)
    (took,) = cells.seconds().values()
    assert took == pytest.approx(sum(took for _, took in cells.took.values()), abs=0.1)
    assert len(cells.took) == 2
    assert took >= 0.2


def test_what_a_cell_is_about_makes_it_another(tmp_path: Path) -> None:
    cells = Parts(tmp_path, {"a": 1})
    one = cells.arrays("x", lambda: {"n": np.array(1)}, {"steps": 1})
    two = cells.arrays("x", lambda: {"n": np.array(2)}, {"steps": 2})
    assert (int(one["n"]), int(two["n"])) == (1, 2)
    again = cells.arrays("x", lambda: pytest.fail("the cell is there"), {"steps": 1})
    assert int(again["n"]) == 1


def test_a_part_that_was_cut_short_is_set_aside_and_made_again(tmp_path: Path) -> None:
    parts = Parts(tmp_path, {})
    parts.arrays("x", lambda: {"n": np.arange(100)})
    path = parts.path("x")
    path.write_bytes(path.read_bytes()[:50])
    again = parts.arrays("x", lambda: {"n": np.array(2)})
    assert int(again["n"]) == 2
    assert [p.name for p in tmp_path.glob("*.broken")] == [f"{path.name}.broken"]


def test_no_part_is_begun_after_the_end_and_those_there_are_read(tmp_path: Path) -> None:
    Parts(tmp_path, {}).arrays("x", lambda: {"n": np.array(1)})
    late = Parts(tmp_path, {}, until=0.0)
    assert int(late.arrays("x", lambda: pytest.fail("the part is there"))["n"]) == 1
    with pytest.raises(OutOfTime):
        late.arrays("y", lambda: pytest.fail("too late"))
