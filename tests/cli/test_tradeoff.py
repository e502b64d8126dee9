"""`holdfast tradeoff` from the outside."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.cli.main import main
from holdfast.cli.tradeoff import parsed_epsilon


@pytest.mark.parametrize(
    ("text", "radii"),
    [("0:0.3:4", [0, 0.1, 0.2, 0.3]), ("0, 0.05,0.2", [0, 0.05, 0.2]), ("0.1:0.1:1", [0.1])],
)
def test_epsilons_are_read(text: str, radii: list[float]) -> None:
    assert parsed_epsilon(text) == radii


@pytest.mark.parametrize("text", ["", "0:1", "a:b:c", "0:1:0", "0:1:1", "0;1"])
def test_wrong_epsilons_are_refused(text: str) -> None:
    with pytest.raises(hf.HoldfastError, match="--epsilon takes FIRST:LAST:COUNT"):
        parsed_epsilon(text)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame(np.random.default_rng(0).random((300, 4)), columns=list("abcd"))
    good = table["a"] * 3 - table["b"] * 2 + table["c"] > 1.1
    table.assign(outcome=np.where(good, "yes", "no")).to_csv(tmp_path / "train.csv", index=False)
    (tmp_path / "recipe.toml").write_text("hidden = [6]\nepochs = 4\nbatch_size = 32\nlr = 0.01\n")
    common = [
        "tradeoff",
        "--data",
        str(tmp_path / "train.csv"),
        "--recipe",
        str(tmp_path / "recipe.toml"),
    ]
    args: list[Any] = [
        *common,
        "--epsilon",
        "0:0.2:2",
        "--rows",
        "20",
        "--method",
        "nearest-neighbor",
    ]
    assert main([*args, "--plot", str(tmp_path / "curves.svg")]) == 0
    said = capsys.readouterr()
    content = json.loads(said.out)
    assert [line["epsilon"] for line in content["table"]] == [0.0, 0.2]
    assert "last column, 'outcome'" in said.err
    assert "epsilon" in said.err
    assert (tmp_path / "curves.svg").read_text().startswith("<svg")
    assert (
        main(
            [
                *args,
                "--target",
                "outcome",
                "--wanted",
                "yes",
                "--out",
                str(tmp_path / "out.csv"),
                "--quiet",
            ]
        )
        == 0
    )
    assert capsys.readouterr() == ("", "")
    assert len(pd.read_csv(tmp_path / "out.csv")) == 2
    for wrong, words in (
        (["--wanted", "maybe"], "--wanted 'maybe' is not an outcome"),
        (["--epsilon", "x"], "--epsilon takes"),
        (["--test", "0"], "--test must be above 0"),
        (["--plot", "x.pdf"], "the extension must be one of"),
        (["--out", "x.pdf"], "x.pdf"),
        (["--method", "Oracle"], "Oracle"),
    ):
        assert main([*args, *wrong]) == 2
        assert words in capsys.readouterr().err
