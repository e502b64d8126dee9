"""The lowest versions that pyproject.toml allows, one requirement a line, for `make lowest`.

Dependencies, extras, and the tools that the tests need. Of torch one release has a CPU build at
hand, which is the one in constraints.txt: it is installed instead of the lowest.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ("hypothesis", "onnx", "onnxruntime", "pytest", "skl2onnx")
PINNED = ("torch",)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = list[str](project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    tools = project["dependency-groups"]["dev"]
    wanted += [line for line in tools if isinstance(line, str) and line.split(">")[0] in TOOLS]
    lowest = dict(line.split(">=") for line in wanted)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for name in PINNED:
        found = re.search(rf"^{name}==(\S+)$", pins, re.MULTILINE)
        if found is None:
            sys.exit(f"constraints.txt does not pin {name}")
        lowest[name] = found[1]
    print("\n".join(f"{name}=={version}" for name, version in sorted(lowest.items())))


if __name__ == "__main__":
    main()
