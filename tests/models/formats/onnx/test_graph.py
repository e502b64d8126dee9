"""Graphs that are refused before anything is run."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import holdfast as hf
from holdfast.errors import FileError
from holdfast.models.formats.onnx import runtime as interpreter
from support.onnx_graphs import BOX, NETWORKS, exported, graph_of, one, refused


def test_data_in_other_files_and_functions_are_refused(tmp_path: Path) -> None:
    model = onnx.load_from_string(exported(NETWORKS["mlp"][1], 4))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    with pytest.raises(FileError, match="another file, which is not read"):
        hf.Model.load(path, BOX)
    model = onnx.load_from_string(one("Relu"))
    model.functions.append(
        helper.make_function("f", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [])
    )
    refused(model.SerializeToString(), "functions of its own")


def test_names_that_lead_nowhere_are_refused() -> None:
    flat = {"x": (1, [None, 4])}
    refused(
        graph_of([helper.make_node("Relu", ["nothing"], ["y"])], flat, {}),
        "nothing before it makes",
    )
    refused(graph_of([helper.make_node("Relu", ["x"], ["z"])], flat, {}), "made by nothing")
    twice = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Tanh", ["x"], ["y"])]
    refused(graph_of(twice, flat, {}), "exists already")
    model = onnx.load_from_string(one("Add", {"c": np.zeros((1, 4), np.float32)}))
    model.graph.initializer[0].dims[0] = 1 << 40
    refused(model.SerializeToString(), "numbers")
    with pytest.raises(FileError, match="not a column"):
        interpreter.load(
            graph_of(
                [helper.make_node("Add", ["a", "b"], ["y"])],
                {"a": (1, [None, 1]), "b": (1, [None, 1])},
                {},
            ),
            BOX,
        )
