"""`python -m docs.generator.pictures`: the pictures of the start page, made anew.

`plans.png` is the page that `holdfast demo` writes, seen in Chromium; `frontier.svg` is what
certainty costs the first people of the same demo; `demo.json` has the figures that README.md tells
of it. Needs the programs chromium and pngquant, and some minutes; the pictures are kept in the
repository.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast as hf
from docs.generator.__main__ import ROOT
from holdfast.cli.demo import applicants, pipeline, search_for
from holdfast.render.charts.theme import to_svg

PICTURES = ROOT / "docs/pictures"
SIZE = "1180,1560"  # as much of the page as shows all its parts
COLOURS = "64"  # of a picture that is made of pixels
PEOPLE = 12  # in the picture of what certainty costs
CHROMIUM = (
    "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --hide-scrollbars"
)


def screenshot(page: Path, picture: Path, size: str = SIZE) -> None:
    """A page as Chromium shows it, in few colours."""
    with tempfile.TemporaryDirectory() as profile:
        program = [
            *CHROMIUM.split(),
            f"--user-data-dir={profile}",
            f"--window-size={size}",
        ]
        program += [f"--screenshot={picture}", page.resolve().as_uri()]
        subprocess.run(program, check=True, capture_output=True)
    shrink(picture)


def shrink(picture: Path) -> None:
    """The same picture in few colours, which a page of text and charts does not miss."""
    words = ["--force", "--strip", "--output", str(picture), COLOURS, str(picture)]
    subprocess.run(["pngquant", *words], check=True)


def demo(out: Path) -> None:
    """The page of the demo, and its figures."""
    program = [sys.executable, "-m", "holdfast", "demo", "--out", str(out)]
    told = subprocess.run(
        program, check=True, capture_output=True, text=True, cwd=out.parent
    )
    plans = hf.Plans.load(out / "plans.parquet")
    figures = {
        "people": len(plans),
        "certified plans": int(plans.certified.sum()),
        "smallest changes": next(
            line
            for line in told.stdout.splitlines()
            if line.startswith("Smallest changes")
        ),
    }
    (PICTURES / "demo.json").write_text(
        json.dumps(figures, indent=1) + "\n", encoding="utf-8"
    )
    screenshot(out / "report.html", PICTURES / "plans.png")


def frontier() -> None:
    """What certainty costs the first people whom the demo's pipeline refuses."""
    train, test = applicants()
    fitted = pipeline().fit(train.X, train.y)
    recourse = search_for(fitted, train)
    denied = test.X[fitted.predict(test.X) == "denied"].head(PEOPLE)
    chart = recourse.frontier(denied, "approved").plot()
    (PICTURES / "frontier.svg").write_text(to_svg(chart), encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as room:
        demo(Path(room) / "demo")
    frontier()


if __name__ == "__main__":
    main()
