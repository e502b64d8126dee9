"""The page and the site set like beside like, with every option that is not the library's."""

from pathlib import Path

from experiments.hoeltgen2021.page import brief
from experiments.hoeltgen2021.reported import METHODS
from experiments.hoeltgen2021.wgan import WGAN
from holdfast.images.autoencoders import ConvVAE
from support.committed import RESULTS as FOLDER
from support.committed import committed_results

SITE = Path(__file__).parents[3] / "docs/reproductions/index.md"
RESULTS = committed_results("hoeltgen2021")


def test_the_site_has_the_committed_figures() -> None:
    text = SITE.read_text()
    for found in RESULTS.values():
        for row in brief(found):
            assert f"| {' | '.join(row)} |" in text


def test_the_site_sets_like_beside_like() -> None:
    """What the paper reports is of a network of its own for DeDUCE and another for the rest."""
    rows = brief(RESULTS["mnist"])
    assert [row[1] for row in rows] == [f"`{m}`" for m in (*METHODS, *METHODS)]
    for what, part in (("mixed", rows[:4]), ("same", rows[4:])):
        found = RESULTS["mnist"]["table 1"][what]["common pairs"]["conditioned"]
        for m, row in zip(METHODS, part, strict=True):
            assert row[2].split()[0] == f"{found[m]['L0'][0]:.2f}"
            assert all(("(" in cell) == (what == "mixed") for cell in row[2:])


def test_the_page_names_every_option_that_is_not_the_librarys() -> None:
    page = (FOLDER / "hoeltgen2021/README.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("Accuracy on test images")]
    (line,) = lines
    how = RESULTS["mnist"]["settings"]
    for kind in ("spectral", "plain", "autoencoder", "vae", "gan", "vlk", "revise", "anogan"):
        for option, value in how[kind].items():
            assert f"{option} {value}" in line
    assert f"updates {how['gan']['updates']} ({WGAN().updates})" in line
    assert f"epochs {how['vae']['epochs']} ({ConvVAE().epochs})" in line
