"""What certainty costs: chosen by some models, judged by others."""

import numpy as np

from support.frontiers import three_people


def test_the_plan_for_a_share_is_the_cheapest_that_is_accepted_so_often() -> None:
    frontier = three_people()
    costs = frontier.costs()
    assert costs.columns.tolist() == [0.8, 0.9, 0.99]
    assert costs.loc["Ann"].tolist() == [1, 2, 3]
    assert costs.loc["Ben"].tolist()[:2] == [4, 4]
    assert np.isnan(costs.loc["Ben", 0.99])
    assert costs.loc["Cyd"].isna().all()
    assert frontier.chosen.tolist() == [[0, 1, 2], [4, 4, -1], [-1, -1, -1]]


def test_survival_is_that_of_models_that_did_not_choose() -> None:
    table = three_people().table()
    assert table.index.tolist() == ["Ann"] * 3 + ["Ben"] * 3 + ["Cyd"] * 3
    assert table["hold"].tolist() == [0.8, 0.9, 0.99] * 3
    assert table["survival"].tolist()[:5] == [0.7, 0.91, 0.99, 0.9, 0.9]
    assert table["plan"].tolist()[0] == "Raise money from 0 to 1."
    assert table["plan"].tolist()[5:] == ["No plan is accepted so often."] * 4
    assert (table["bound"].dropna() < table["survival"].dropna()).all()


def test_in_words() -> None:
    lines = repr(three_people()).splitlines()
    assert lines == [
        "What certainty costs",
        "80%: median cost 2.5, reached by 2 of 3",
        "90%: median cost 3, reached by 2 of 3",
        "99%: median cost 3, reached by 1 of 3",
    ]


def test_more_certainty_never_costs_less() -> None:
    costs = three_people(holds=(0.1, 0.5, 0.8, 0.9, 0.95, 1.0)).costs().fillna(np.inf).to_numpy()
    assert (costs[:, 1:] >= costs[:, :-1]).all()
