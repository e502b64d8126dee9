"""TreeSearch: hand-made trees, and every reachable row of small tables tried one by one."""

from itertools import product
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import holdfast as hf
from holdfast.methods.tree_search.branch_and_bound import Bound, LinearGoal
from holdfast.methods.tree_search.moves import CellMoves, PersonalMoves
from holdfast.methods.tree_search.single_changes import LeafChanges, LeafTable, ModelChanges
from holdfast.models.black_box import CompiledModel
from holdfast.schema.columns import differ
from holdfast.schema.verify import violations
from support.tables import problem_of

ALL = 50_000  # a beam that holds every candidate of a small table


def tree(frame: pd.DataFrame, yes: Any, **schema: Any) -> CompiledModel:
    """One tree that knows the answer of every row of the table."""
    grown = DecisionTreeClassifier(random_state=0).fit(frame, np.where(yes, "yes", "no"))
    made = hf.Model.of(grown, hf.Schema.infer(frame, scaling="none", **schema))
    assert isinstance(made, CompiledModel)
    return made


def grid(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(list(product(*columns.values())), columns=list(columns))


# ---- hand-made


def test_a_number_stops_just_beyond_the_threshold() -> None:
    frame = grid(a=[0.0, 4.0, 5.0, 9.0], b=[0.0, 1.0])
    model = tree(frame, frame["a"] > 4.5)
    cfs = hf.TreeSearch().explain(model, frame.iloc[:1], "yes")
    ((column, cuts),) = model.scorer.cuts
    assert (column, len(cuts)) == (0, 1)
    # the last number that single precision, in which the tree compares, rounds to 4.5
    cut = float(cuts[0])
    assert 4.5 <= cut < 4.5 + 1e-6
    assert cut < cfs.after["a"].iloc[0] < cut + 1e-12
    assert cfs.after["b"].iloc[0] == 0
    back = hf.TreeSearch().explain(model, frame.iloc[-1:], "no")
    assert cut - 1e-12 < back.after["a"].iloc[0] <= cut


def test_a_limit_between_the_threshold_and_the_first_value_beyond_it_can_be_reached() -> None:
    frame = grid(a=[0.0, 4.0, 5.0, 9.0])
    cut = float(tree(frame, frame["a"] > 4.5).scorer.cuts[0][1][0])
    least = float(np.nextafter(cut, 5))
    model = tree(frame, frame["a"] > 4.5, bounds={"a": (0, least)})
    cfs = hf.TreeSearch().explain(model, frame.iloc[:1], "yes")
    assert cfs.found.all()
    assert cfs.after["a"].iloc[0] == least
    none = tree(frame, frame["a"] > 4.5, bounds={"a": (0, cut)})
    assert (
        hf.TreeSearch()
        .explain(none, frame.iloc[:1], "yes")
        .status["reason"]
        .iloc[0]
        .startswith("proved")
    )


def test_fewest_and_smallest_differ() -> None:
    frame = grid(a=[4, 5], b=[4, 5], c=[90, 91])
    model = tree(frame, (frame["c"] > 90) | ((frame["a"] > 4) & (frame["b"] > 4)))
    person = pd.DataFrame({"a": [2], "b": [3], "c": [0]})
    fewest = hf.TreeSearch(norm=0).explain(model, person, "yes").after
    smallest = hf.TreeSearch(norm=1).explain(model, person, "yes").after
    assert fewest.iloc[0].tolist() == [2, 3, 91]
    assert smallest.iloc[0].tolist() == [5, 5, 0]


def test_steps_are_kept() -> None:
    frame = grid(a=[0.0, 2.0, 4.0, 5.0, 9.0], b=[0, 1])
    model = tree(frame, frame["a"] > 4.5, steps={"a": 2.0})
    cfs = hf.TreeSearch().explain(model, frame.iloc[:1], "yes")
    assert cfs.after["a"].iloc[0] == 6


def test_a_limit_on_changes_is_part_of_the_proof() -> None:
    frame = grid(a=[4, 5], b=[4, 5])
    both = (frame["a"] > 4) & (frame["b"] > 4)
    assert hf.TreeSearch().explain(tree(frame, both), frame.iloc[:1], "yes").after.iloc[
        0
    ].tolist() == [5, 5]
    one = hf.TreeSearch().explain(tree(frame, both, max_changes=1), frame.iloc[:1], "yes")
    assert one.status["reason"].iloc[0].startswith("proved: nothing within reach")


def test_nothing_that_may_change_is_a_proof_too() -> None:
    frame = grid(a=[4, 5], b=[4, 5])
    model = tree(frame, frame["a"] > 4, fixed=["a"])
    cfs = hf.TreeSearch().explain(model, frame.iloc[:1], "yes")
    assert cfs.status["reason"].iloc[0].startswith("proved")


def test_other_columns_make_room_for_a_rule() -> None:
    frame = grid(used=[0, 1, 2, 3, 4, 5], total=[2, 4, 6])
    frame = frame[frame["used"] <= frame["total"]].reset_index(drop=True)
    model = tree(frame, frame["used"] > 3, rules=["used <= total"])
    cfs = hf.TreeSearch().explain(model, pd.DataFrame({"used": [1], "total": [2]}), "yes")
    assert cfs.after.iloc[0].tolist() == [4, 4]


def test_data_answers_what_a_short_search_does_not() -> None:
    frame = grid(a=[4, 5], b=[4, 5], c=[4, 5])
    model = tree(frame, (frame["a"] > 4) & (frame["b"] > 4) & (frame["c"] > 4))
    short = hf.TreeSearch(depth=1, max_nodes=0)
    lost = short.explain(model, frame.iloc[:1], "yes")
    assert "not ruled out within the budget" in lost.status["reason"].iloc[0]
    assert short.fit(model, frame).explain(model, frame.iloc[:1], "yes").found.all()
    assert hf.TreeSearch(depth=1).explain(model, frame.iloc[:1], "yes").after.iloc[0].tolist() == [
        5,
        5,
        5,
    ]


# ---- against every reachable row


SIZES = {"n": 5, "m": 4, "owner": 2, "job": 3}
EVERY = pd.DataFrame(
    list(product(range(5), range(4), [False, True], ["a", "b", "c"])), columns=list(SIZES)
)  # all there is: 120 rows


# the same, and each number may be missing: 180 rows
GAPPY = EVERY.iloc[:0].astype({"n": "float64", "m": "float64"})
GAPPY = pd.concat(
    [
        GAPPY,
        pd.DataFrame(
            product([np.nan, *range(5)], [*range(4), np.nan], [False, True], "abc"),
            columns=list(SIZES),
        ),
    ],
    ignore_index=True,
)


def outcome(seed: int, every: pd.DataFrame = EVERY) -> Any:
    noise = np.random.default_rng(seed).normal(0, 0.8, len(every))
    # who does not say is treated like a low number, by and large
    n = every["n"].fillna(1.3)
    m = every["m"].fillna(0.4)
    return n / 2 + m / 3 + every["owner"] + (every["job"] == "b") + noise


def estimator(kind: str, seed: int, y: Any, every: pd.DataFrame = EVERY) -> Any:
    last = {
        "forest": RandomForestClassifier(5, max_depth=4, random_state=seed),
        "xgboost": xgboost.XGBClassifier(n_estimators=8, max_depth=3, learning_rate=0.5, n_jobs=1),
        "hist": HistGradientBoostingClassifier(max_iter=6, min_samples_leaf=3, random_state=seed),
        "lightgbm": lightgbm.LGBMClassifier(
            n_estimators=6, min_child_samples=3, num_leaves=7, verbose=-1, n_jobs=1
        ),
        "zeros": lightgbm.LGBMClassifier(
            n_estimators=6,
            min_child_samples=3,
            num_leaves=7,
            zero_as_missing=True,
            verbose=-1,
            n_jobs=1,
        ),
    }[kind]
    prepare = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["job"]), remainder="passthrough"
    )
    return make_pipeline(prepare, last).fit(every, y)


def reachable(schema: hf.Schema, person: pd.DataFrame, every: pd.DataFrame) -> pd.DataFrame:
    """The rows of all there are that keep all promises, judged by code that no search uses."""
    before = np.repeat(schema.read(person), len(every), axis=0)
    return every[violations(schema, before, schema.read(every)) == ""]


def check(
    model: hf.Model,
    people: pd.DataFrame,
    target: hf.Target,
    search: hf.TreeSearch,
    *,
    exact: bool,
    every: pd.DataFrame = EVERY,
) -> int:
    """Answers and proofs against all reachable rows; how many proofs there were."""
    schema = model.schema
    cfs = search.explain(model, people, target)
    weight = schema.encoding(torch.float64).weight
    proofs = 0
    for i in range(len(people)):
        person = people.iloc[i : i + 1]
        rows = reachable(schema, person, every)
        x = schema.encode(person, torch.float64)
        z = schema.encode(rows, torch.float64)
        goal = target.bind(model, model.score_frame(person, x))
        ok = goal[torch.zeros(len(z), dtype=torch.int64)].met(model.score_frame(rows, z))
        reason = cfs.status["reason"].iloc[i]
        if not cfs.found[i]:
            assert reason.startswith("proved")
            assert not ok.any()
            proofs += 1
            continue
        cost = ((z - x).abs() @ weight)[ok]
        count = torch.tensor(differ(schema.read(rows), schema.read(person)).sum(1))[ok]
        mine = float(((cfs.x_cf[i] - cfs.x[i]).abs() * weight).sum())
        changed = int(differ(schema.read(cfs.after.iloc[i : i + 1]), schema.read(person)).sum())
        assert changed >= int(count.min())
        best = float(cost[count == count.min()].min()) if search.norm == 0 else float(cost.min())
        if exact:
            assert search.norm == 1 or changed == int(count.min())
            assert mine == pytest.approx(best, abs=1e-9)
    return proofs


@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("kind", ["forest", "xgboost", "hist"])
def test_every_small_forest_is_solved_exactly(kind: str, norm: int) -> None:
    proofs = 0
    for seed, probability in ((0, 0.5), (1, 0.8)):
        y = (outcome(seed) > 2.6).astype(int)
        schema = hf.Schema.infer(EVERY, up=["m"], fixed=["owner"], weights={"job": 0.3})
        model = hf.Model.of(estimator(kind, seed, y), schema, classes=["no", "yes"])
        assert isinstance(model, CompiledModel)
        people = EVERY[(model.predict(EVERY) == "no").to_numpy()].iloc[::6]
        target = hf.Target("yes", probability=probability)
        proofs += check(model, people, target, hf.TreeSearch(norm=norm, beam=ALL), exact=True)
        check(model, people, target, hf.TreeSearch(norm=norm, beam=4), exact=False)
    assert proofs or kind != "hist"


@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("kind", ["forest", "xgboost", "hist", "lightgbm", "zeros"])
def test_missing_numbers_are_kept_or_filled_in_exactly(kind: str, norm: int) -> None:
    filled = 0
    kept = 0
    for seed, change in enumerate(
        ({"fixed": ["owner"]}, {"fixed": ["n"], "down": ["m"]}, {"fixed": ["owner", "job"]})
    ):
        schema = hf.Schema.infer(GAPPY, weights={"job": 0.3}, integers=["n", "m"], **change)
        y = (outcome(seed, GAPPY) > 2.6).astype(int)
        model = hf.Model.of(estimator(kind, seed, y, GAPPY), schema, classes=["no", "yes"])
        assert isinstance(model, CompiledModel)
        assert not model.rejects_missing
        people = GAPPY[(model.predict(GAPPY) == "no").to_numpy()].iloc[::5]
        target = hf.Target("yes")
        search = hf.TreeSearch(norm=norm, beam=ALL)
        check(model, people, target, search, exact=True, every=GAPPY)
        cfs = search.explain(model, people, target)
        gone = cfs.before[["n", "m"]].isna().to_numpy()[cfs.found]
        still = cfs.after[["n", "m"]].isna().to_numpy()[cfs.found]
        filled = filled + int((gone & ~still).sum())
        kept = kept + int((gone & still).sum())
    assert filled
    assert kept


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_missing_numbers_of_models_over_encoded_rows() -> None:
    schema = hf.Schema.infer(GAPPY, fixed=["owner"], integers=["n", "m"])
    x = schema.encode(GAPPY, torch.float64).numpy()
    grown = RandomForestClassifier(5, max_depth=5, random_state=0).fit(x, outcome(4, GAPPY) > 2.6)
    model = hf.Model.of(grown, schema, classes=["no", "yes"], inputs="encoded")
    assert isinstance(model, CompiledModel)
    people = GAPPY[(model.predict(GAPPY) == "no").to_numpy()].iloc[::9]
    check(
        model,
        people,
        hf.Target("yes", probability=0.7),
        hf.TreeSearch(beam=ALL),
        exact=True,
        every=GAPPY,
    )


def test_a_number_that_is_a_threshold_is_on_its_side() -> None:
    """Encoding a number and decoding it again may change its last digit; gradient boosting splits
    at data values."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(12):
        frame = pd.DataFrame({"g": rng.gamma(1, 1e-3, 300), "h": rng.integers(0, 4, 300)})
        yes = (frame["g"] <= np.sort(frame["g"])[150]) & (frame["h"] > 1)
        grown = HistGradientBoostingClassifier(
            max_iter=1, max_leaf_nodes=3, learning_rate=1.0, min_samples_leaf=1
        )
        grown.fit(frame, yes)
        cuts = [
            n["num_threshold"]
            for (p,) in grown._predictors
            for n in p.nodes
            if not n["is_leaf"] and not n["feature_idx"]
        ]
        people = frame[frame["g"].isin(cuts)].assign(h=0)
        model = hf.Model.of(grown, hf.Schema.infer(frame, fixed=["g"]))
        assert isinstance(model, CompiledModel)
        x = model.schema.encode(frame, torch.float64)
        with model.eval_mode():
            assert torch.allclose(
                torch.softmax(model(x), 1), torch.softmax(model.score_frame(frame, x), 1)
            )
        cfs = hf.TreeSearch().explain(model, people, True)
        hits = hits + len(people)
        can = np.stack([grown.predict(people.assign(h=h)) for h in range(4)]).any(0)
        assert (cfs.found == can).all()
    assert hits > 5


@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_ranges_of_estimates(kind: str) -> None:
    grown = (
        RandomForestRegressor(5, max_depth=4, random_state=0)
        if kind == "forest"
        else xgboost.XGBRegressor(n_estimators=8, max_depth=3, n_jobs=1)
    )
    prepare = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["job"]), remainder="passthrough"
    )
    schema = hf.Schema.infer(EVERY, up=["m"], fixed=["owner"])
    model = hf.Model.of(make_pipeline(prepare, grown).fit(EVERY, outcome(4)), schema)
    assert isinstance(model, CompiledModel)
    said = model.predict(EVERY)
    proofs = 0
    for low, high in ((3.0, 3.2), (4.0, None), (None, 1.0)):
        wish = hf.Target.between(low, high)
        outside = (said < (-9 if low is None else low)) | (said > (9 if high is None else high))
        people = EVERY[outside.to_numpy()].iloc[::9]
        proofs += check(model, people, wish, hf.TreeSearch(beam=ALL), exact=True)
        check(model, people, wish, hf.TreeSearch(norm=1, beam=ALL), exact=True)
    assert proofs


@pytest.mark.parametrize("label", ["mid", None])
def test_more_classes_than_two(label: str | None) -> None:
    y = pd.cut(outcome(3), [-9, 1.8, 3.0, 9], labels=["low", "mid", "high"]).astype(str)
    schema = hf.Schema.infer(EVERY, fixed=["job", "owner"], down=["n"])
    model = hf.Model.of(estimator("forest", 0, y), schema)
    assert isinstance(model, CompiledModel)
    people = EVERY[(model.predict(EVERY) != label).to_numpy()].iloc[::9]
    check(model, people, hf.Target(label), hf.TreeSearch(norm=1, beam=ALL), exact=True)


def test_models_over_encoded_rows() -> None:
    schema = hf.Schema.infer(EVERY, fixed=["owner"])
    x = schema.encode(EVERY, torch.float64).numpy()
    grown = RandomForestClassifier(5, max_depth=4, random_state=0).fit(x, outcome(4) > 2.6)
    model = hf.Model.of(grown, schema, classes=["no", "yes"], inputs="encoded")
    assert isinstance(model, CompiledModel)
    people = EVERY[(model.predict(EVERY) == "no").to_numpy()].iloc[::9]
    check(model, people, hf.Target("yes", probability=0.7), hf.TreeSearch(beam=ALL), exact=True)


TABLES = {
    name: (every, estimator("xgboost", 5, (outcome(5, every) > 2.8).astype(int), every))
    for name, every in (("every", EVERY), ("gappy", GAPPY))
}
change = st.sampled_from(["free", "fixed", "up", "down"])


@settings(max_examples=30, deadline=None)
@example(  # n has to change anyway, and may then change by more for less of m
    n="free",
    m="free",
    owner="free",
    job="free",
    low=2,
    allowed=("a", "b", "c"),
    most=0,
    row=30,
    norm=0,
    name="gappy",
)
@given(
    n=change,
    m=change,
    owner=change,
    job=st.sampled_from(["free", "fixed"]),
    low=st.integers(0, 2),
    allowed=st.sampled_from([("a", "b", "c"), ("a", "c")]),
    most=st.integers(0, 3),
    row=st.integers(0, len(EVERY) - 1),
    norm=st.sampled_from([0, 1]),
    name=st.sampled_from(list(TABLES)),
)
def test_any_schema(
    n: str,
    m: str,
    owner: str,
    job: str,
    low: int,
    allowed: tuple[str, ...],
    most: int,
    row: int,
    norm: int,
    name: str,
) -> None:
    every, fitted = TABLES[name]
    schema = hf.Schema.infer(every, max_changes=most, integers=["n", "m"]).change(
        n={"change": n, "bounds": (float(low), 4.0)},
        m={"change": m},
        owner={"change": owner},
        job={"change": job, "allowed": allowed},
    )
    model = hf.Model.of(fitted, schema, classes=["no", "yes"])
    people = every.iloc[row : row + 1]
    cfs = hf.TreeSearch().explain(model, people, "yes")
    if (
        "already" in cfs.status["reason"].iloc[0]
        or "nothing can be reached" in cfs.status["reason"].iloc[0]
    ):
        return
    check(
        model, people, hf.Target("yes"), hf.TreeSearch(norm=norm, beam=ALL), exact=True, every=every
    )


# ---- the parts


def parts(kind: str) -> tuple[hf.SearchProblem, PersonalMoves, LeafChanges, LeafTable]:
    model = hf.Model.of(
        estimator(kind, 0, (outcome(0) > 2.6).astype(int)), hf.Schema.infer(EVERY, fixed=["m"])
    )
    assert isinstance(model, CompiledModel)
    assert model.thresholds is not None
    cells = model.thresholds.cells
    leaves = model.thresholds.leaves
    assert leaves is not None
    moves = CellMoves.of(cells, model.schema, torch.float64)
    problem = problem_of(model, model.schema.encode(EVERY.iloc[::7], torch.float64))
    personal = PersonalMoves.of(moves, problem.feasible)
    table = LeafTable(leaves, moves, model.scorer.outputs)
    return problem, personal, LeafChanges(problem, personal, table), table


def some_candidates(personal: PersonalMoves) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    spans = personal.moves.spans
    person = torch.arange(len(personal))
    taken = torch.stack(
        [torch.randint(a, b, (len(personal),), generator=generator) for a, b in spans], 1
    )
    return person, taken


@pytest.mark.parametrize("kind", ["forest", "xgboost", "hist"])
def test_leaves_and_the_model_see_the_same(kind: str) -> None:
    problem, personal, changes, _ = parts(kind)
    person, taken = some_candidates(personal)
    tried = torch.ones(len(taken), len(personal.moves), dtype=torch.bool)
    theirs = ModelChanges(problem, personal).gaps(person, taken, tried)
    near = theirs > -30  # where a forest gives no chance at all, the logarithm is cut off
    assert torch.allclose(changes.gaps(person, taken, tried)[near], theirs[near], atol=1e-7, rtol=0)


@pytest.mark.parametrize("kind", ["forest", "xgboost", "hist"])
def test_no_row_of_a_box_exceeds_its_bound(kind: str) -> None:
    problem, personal, changes, table = parts(kind)
    bound = Bound(table, LinearGoal.of(problem, 1, table.k, table.outputs))
    generator = torch.Generator().manual_seed(1)
    person, taken = some_candidates(personal)
    mask = torch.rand(len(taken), len(personal.moves), generator=generator) < 0.5
    mask.scatter_(1, taken, True)
    ub, _, _ = bound(mask, changes.outside_fixed, personal.moves.spans)
    point, _, _ = bound(
        torch.zeros_like(mask).scatter_(1, taken, True), changes.outside_fixed, personal.moves.spans
    )
    assert (point <= ub + 1e-9).all()
    assert (point < ub - 1e-3).any()
    gap = problem.goal.gap(problem.model(personal.rows(person, taken)))
    assert torch.equal(point > 0, gap > 0)


def test_a_model_without_thresholds_is_asked_at_quantiles() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(200), "b": rng.random(200)})

    def score(rows: pd.DataFrame) -> Any:
        return 1 / (1 + np.exp(-8 * (rows["a"] + 0.1 * rows["b"] - 0.8).to_numpy()))

    model = hf.Model.of(score, hf.Schema.infer(frame, scaling="none"), classes=["no", "yes"])
    person = pd.DataFrame({"a": [0.2], "b": [0.5]})
    for search in (hf.TreeSearch(), hf.TreeSearch().fit(model, frame)):
        cfs = search.explain(model, person, "yes")
        assert cfs.after["b"].iloc[0] == 0.5
        assert 0.75 < cfs.after["a"].iloc[0] < 0.752  # 0.75 is the boundary
