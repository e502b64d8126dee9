"""The picture of what certainty costs."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.errors import SettingError
from holdfast.render.charts.frontier import MOST_LINES, frontier_chart
from holdfast.render.charts.theme import to_svg
from support.frontiers import three_people


def drawn(chart: object, layer: int) -> list[dict[str, object]]:
    spec = chart.to_dict()
    return spec["datasets"][spec["layer"][layer]["data"]["name"]]


def test_a_thin_line_per_person_a_thick_one_for_the_median_and_counts() -> None:
    chart = three_people().plot()
    thin = drawn(chart, 0)
    thick = drawn(chart, 1)
    counts = drawn(chart, 4)
    assert {(line["person"], line["hold"], line["cost"]) for line in thin} == {
        ("Ann", "80%", 1.0),
        ("Ann", "90%", 2.0),
        ("Ann", "99%", 3.0),
        ("Ben", "80%", 4.0),
        ("Ben", "90%", 4.0),
    }  # Cyd reaches none of them
    assert [(line["hold"], line["cost"]) for line in thick] == [
        ("80%", 2.5),
        ("90%", 3.0),
        ("99%", 3.0),
    ]
    assert [line["reached"] for line in counts] == ["2 of 3", "2 of 3", "1 of 3"]
    assert "90%: median cost 3.00, reached by 2 of 3 people." in to_svg(chart)


def test_people_of_one_name_have_lines_of_their_own() -> None:
    thin = drawn(three_people(names=["x", "x", "x"]).plot(), 0)
    assert len({line["place"] for line in thin}) == 2


def test_many_people_are_some_lines_and_the_median_of_all() -> None:
    frontier = three_people(copies=400)
    chart = frontier_chart(frontier)
    assert len({line["place"] for line in drawn(chart, 0)}) <= MOST_LINES
    assert drawn(chart, 4)[0]["reached"] == "800 of 1,200"
    assert f"{MOST_LINES} of 1,200 shown" in chart.to_dict()["title"]["text"]


def test_where_nobody_has_a_plan_there_is_nothing_to_draw() -> None:
    none = three_people()
    none = hf.Frontier(none.chosen_by, none.judged_by, (1.0,))
    none.chosen_by.held[:] = np.array(False)
    with pytest.raises(SettingError, match="nobody has a plan for any of the shares"):
        none.plot()
