"""The lowest versions that pyproject.toml allows, one requirement a line, for `make lowest`.

Dependencies and extras at their lowest; the tools that only tests need, and torch, of which one
release has a CPU build at hand, as constraints.txt pins them.
"""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = ("hypothesis", "onnx", "onnxruntime", "pytest", "skl2onnx", "torch")


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list[str](project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    lowest = dict[str, str]()
    for line in wanted:
        name, version = line.split(">=")
        # an extra may ask for more; then the tests of that extra are left out
        lowest.setdefault(name, version)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in pins if "==" in line)
    lowest |= {name: pinned[name] for name in PINNED}
    print("\n".join(f"{name}=={version}" for name, version in sorted(lowest.items())))


if __name__ == "__main__":
    main()
