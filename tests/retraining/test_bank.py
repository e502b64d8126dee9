"""Banks of retrained models: every family is what it says, and a bank is the sum of its models."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import holdfast as hf
from holdfast._core.seal import sealed
from holdfast.errors import FileError, ModelError, SchemaError, SettingError
from holdfast.models.formats import safetensors
from holdfast.nn.architecture import mlp
from holdfast.nn.stack import Stack
from holdfast.retraining.bank import ModelBank
from holdfast.retraining.base_run import BaseRun
from holdfast.retraining.families import FAMILIES, FOR_ESTIMATORS, FOR_NETWORKS, family
from holdfast.retraining.loop import glorot, redrawn
from holdfast.retraining.model_group import ModelGroup
from holdfast.retraining.recipe import Recipe
from holdfast.retraining.row_facts import periods_of
from support.tables import mixed_schema, mixed_table

N = 61
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(N, 4)), columns=list("abcd"), index=[f"p{i}" for i in range(N)])
Y = pd.Series(np.where(X.a + X.b * X.c > 0, 2, np.where(X.d > 0, 1, 0)), index=X.index)
SCHEMA = hf.Schema.infer(X)
D = SCHEMA.width
RECIPE = Recipe(hidden=(6, 5), epochs=4, batch_size=16, lr=0.01)


def tanh() -> nn.Sequential:
    return nn.Sequential(nn.Sequential(nn.Linear(D, 5), nn.Tanh()), nn.Linear(5, 3))


def norm() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(D, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 3)
    )


RECIPES = {
    "relu": RECIPE,
    "tanh": Recipe(module=tanh(), epochs=4, batch_size=16),
    "norm": Recipe(module=norm(), epochs=3, batch_size=16),
}


def bank(recipe: Any = RECIPE, outcome: Any = Y, table: Any = X, **settings: Any) -> ModelBank:
    return ModelBank.retrain(
        recipe, table, outcome, SCHEMA, **({"classes": [0, 1, 2], "seed": 7} | settings)
    )


def tensors(made: ModelBank) -> list[list[Tensor]]:
    """The tensors of every model."""
    return [
        [v[i] for v in group.networks.state().values()]
        for group in made.groups
        for i in range(len(group))
        if group.networks is not None
    ]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(v, w) for v, w in zip(a, b, strict=True))


def near(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.allclose(v, w, rtol=0, atol=1e-5) for v, w in zip(a, b, strict=True))


def weights(model: hf.Model) -> list[Tensor]:
    return list(model.module.state_dict().values())


def base(recipe: Recipe = RECIPE, outcome: Any = Y, table: Any = X, seed: int = 7) -> list[Tensor]:
    return weights(recipe.fit(table, outcome, SCHEMA, classes=[0, 1, 2], seed=seed))


def plan_of(name: str, models: range, recipe: Recipe = RECIPE) -> Any:
    """The one variation of a family."""
    (variation,) = family(name)(BaseRun.of(recipe, X, Y, SCHEMA, [0, 1, 2], 7, range(N)), models)
    return variation


# ---- stacked and alone


@pytest.mark.parametrize("name", RECIPES)
def test_together_equals_alone(name: str) -> None:
    whole = tensors(bank(RECIPES[name], families={"seed": 4}))
    assert len(whole) == 4
    for i in range(4):
        (one,) = tensors(bank(RECIPES[name], families={"seed": range(i, i + 1)}))
        assert near(one, whole[i])
    assert not any(near(whole[0], other) for other in whole[1:])


@pytest.mark.parametrize("name", FOR_NETWORKS)
def test_a_range_makes_the_same_models_as_a_count(name: str) -> None:
    old: dict[str, Any] = {"time": np.arange(N) % 4} if name == "history" else {}
    if name == "fresh":  # which needs rows
        old = {
            "table": pd.concat([X] * 6, ignore_index=True),
            "outcome": pd.concat([Y] * 6, ignore_index=True),
        }
    many = bank(families={name: 6}, **old)
    few = bank(families={name: range(2, 5)}, **old)
    assert len(many) == 6
    assert len(few) == 3
    left = tensors(many)
    for one in tensors(few):
        hits = [
            i for i, other in enumerate(left) if [v.shape for v in one] == [v.shape for v in other]
        ]
        assert any(near(one, left[i]) for i in hits)
    assert few.members() <= many.members()
    assert many.members().isdisjoint(bank(families={name: 6}, seed=40, **old).members())
    if name != "epochs":  # four epochs have few lengths between half and one and a half times
        assert len(many.members()) == 6
        assert few.members().isdisjoint(bank(families={name: range(5, 6)}, **old).members())


def test_several_families_are_those_of_each() -> None:
    whole = bank(families={"bootstrap": 2, "seed": 3, "width": 5})
    assert whole.families == {"bootstrap": 2, "seed": 3, "width": 5}
    assert whole.family.tolist() == ["bootstrap"] * 2 + ["seed"] * 3 + ["width"] * 5
    parts = [
        one
        for name, count in whole.families.items()
        for one in tensors(bank(families={name: count}))
    ]
    assert all(near(a, b) for a, b in zip(tensors(whole), parts, strict=True))


# ---- what each family says


def test_seed_changes_weights_and_not_the_order() -> None:
    """Paper: black2022 Retraining RS."""
    plan = plan_of("seed", range(3))
    assert len(set(plan.weights) | {7}) == 4
    assert set(plan.order) == {7}
    assert plan.kept is plan.emphasis is plan.labels is plan.epochs is None
    for i, one in enumerate(tensors(bank(families={"seed": 3}))):
        assert not near(one, base())
        assert plan.weights[i] not in plan.weights[:i]
    both = plan_of("seed_and_order", range(3))
    assert both.weights == plan.weights
    assert len(set(both.order) | {7}) == 4
    a = tensors(bank(families={"seed": 3}))
    b = tensors(bank(families={"seed_and_order": 3}))
    assert not any(near(v, w) for v, w in zip(a, b, strict=True))
    # With a start and an order of its own, a model is simply the fit with that seed.
    assert near(b[1], base(seed=both.weights[1]))


@pytest.mark.parametrize("name", RECIPES)
def test_leave_one_out_never_sees_its_row(name: str) -> None:
    """Paper: black2022 Retraining LOO."""
    pool = [50, 3, 17]
    made = tensors(bank(RECIPES[name], families={"leave_one_out": 3}, pool=pool))
    for i, row in enumerate(pool):
        table = X.copy()
        outcome = Y.copy()
        table.iloc[row] = [5.0, -5.0, 4.0, 3.0]
        outcome.iloc[row] = (outcome.iloc[row] + 1) % 3
        other = tensors(
            bank(RECIPES[name], outcome, table, families={"leave_one_out": 3}, pool=pool)
        )
        assert [same(a, b) for a, b in zip(made, other, strict=True)] == [j == i for j in range(3)]
        assert not near(base(RECIPES[name]), base(RECIPES[name], outcome, table))


def test_leave_one_out_shares_start_and_order_with_the_base() -> None:
    plan = plan_of("leave_one_out", range(2, 6))
    assert set(plan.weights) == set(plan.order) == {7}
    assert (~plan.kept).nonzero().tolist() == [[0, 2], [1, 3], [2, 4], [3, 5]]
    # A row that weighs nothing at all in the base's loss: with one batch per epoch only the mean's
    # divisor differs.
    big = Recipe(hidden=(6,), epochs=3, batch_size=N, lr=0.01, adam_eps=1e-12)
    (without,) = tensors(bank(big, families={"leave_one_out": 1}, pool=[4]))
    table = X.drop(index="p4")
    outcome = Y.drop("p4")
    start = glorot(mlp(D, (6,), 3), 7)
    assert near(without, base(big, outcome, table))  # all rows in one batch: the order is no matter
    assert not near(without, list(start.values()))


def test_pool() -> None:
    drawn = bank(families={"leave_one_out": 4})
    order = torch.randperm(N, generator=torch.Generator().manual_seed(7))[:4].tolist()
    assert all(
        near(a, b)
        for a, b in zip(
            tensors(drawn), tensors(bank(families={"leave_one_out": 4}, pool=order)), strict=True
        )
    )
    turned = tensors(bank(families={"leave_one_out": 4}, pool=order[::-1]))
    assert all(near(a, b) for a, b in zip(tensors(drawn), turned[::-1], strict=True))
    for count in (3, range(2, 3)):
        with pytest.raises(SettingError, match=r"leave_one_out up to 3 .* there are 2"):
            bank(families={"leave_one_out": count}, pool=[1, 2])
    with pytest.raises(SettingError, match=f"there are {N}"):
        bank(families={"leave_one_out": N + 1})
    for pool in ([1, 1], [-1], [N]):
        with pytest.raises(SettingError, match=f"between 0 and {N - 1}"):
            bank(families={"leave_one_out": 1}, pool=pool)


def test_leave_share_out_lacks_a_tenth() -> None:
    plan = plan_of("leave_share_out", range(5))
    assert (~plan.kept).sum(1).tolist() == [6] * 5
    assert len({tuple(row) for row in plan.kept.tolist()}) == 5
    assert set(plan.weights) == set(plan.order) == {7}
    gone = int((~plan.kept[0]).nonzero()[0])
    outcome = Y.copy()
    outcome.iloc[gone] = (outcome.iloc[gone] + 1) % 3
    a = tensors(bank(outcome=Y, families={"leave_share_out": 5}))
    b = tensors(bank(outcome=outcome, families={"leave_share_out": 5}))
    assert [same(v, w) for v, w in zip(a, b, strict=True)] == (plan.kept[:, gone] == 0).tolist()


def test_bootstrap_weights_add_up() -> None:
    plan = plan_of("bootstrap", range(5))
    assert plan.emphasis.sum(1).tolist() == [N] * 5
    assert (plan.emphasis == plan.emphasis.round()).all()
    assert 0.2 < float((plan.emphasis == 0).float().mean()) < 0.5  # 1/e of the rows are never drawn
    assert len({tuple(row) for row in plan.emphasis.tolist()}) == 5
    assert set(plan.weights) == set(plan.order) == {7}
    # Drawn twice is there twice: one batch that holds every row as often as it was drawn.
    big = Recipe(hidden=(6,), epochs=3, batch_size=N, lr=0.01)
    for i, one in enumerate(tensors(bank(big, families={"bootstrap": 2}))):
        rows = np.repeat(np.arange(N), plan.emphasis[i].long().numpy())
        assert near(one, base(big, Y.iloc[rows], X.iloc[rows]))


def test_retrain_changes_weights_order_and_rows_together() -> None:
    plan = plan_of("retrain", range(4))
    other = plan_of("seed", range(4))
    boot = plan_of("bootstrap", range(4))
    assert plan.weights == plan.order
    assert len({*plan.weights, *other.weights, 7}) == 9
    assert plan.emphasis.sum(1).tolist() == [N] * 4
    assert not any((a == b).all() for a in plan.emphasis for b in boot.emphasis)
    # A model is the fit with its own seed on the rows that were drawn; in one batch the order is no
    # matter.
    big = Recipe(hidden=(6,), epochs=3, batch_size=N, lr=0.01)
    for i, one in enumerate(tensors(bank(big, families={"retrain": 2}))):
        rows = np.repeat(np.arange(N), plan.emphasis[i].long().numpy())
        assert near(one, base(big, Y.iloc[rows], X.iloc[rows], seed=plan.weights[i]))
    assert (
        bank(big, families={"retrain": 2}).members()
        == bank(big, families={"retrain": range(2)}).members()
    )


def test_rows_are_drawn_again_until_every_class_is_there() -> None:
    rare = pd.Series(np.where(np.arange(N) == 0, 0, 1 + np.arange(N) % 2), index=X.index)
    run = BaseRun.of(RECIPE, X, rare, SCHEMA, [0, 1, 2], 7)
    for name in ("bootstrap", "retrain"):
        (variation,) = family(name)(run, range(8))
        assert variation.emphasis is not None
        assert (variation.emphasis[:, 0] >= 1).all()
        assert variation.emphasis.sum(1).tolist() == [N] * 8
    # a class of which there is no row at all
    lacking = BaseRun.of(RECIPE, X, rare, SCHEMA, [-1, 0, 1, 2], 7)
    assert len(family("retrain")(lacking, range(2))[0]) == 2
    each = BaseRun.of(RECIPE, X, pd.Series(range(N), index=X.index), SCHEMA, None, 7)
    with pytest.raises(SettingError, match=f"keep leaving out a class: 0 has 1 of {N} rows"):
        family("retrain")(each, range(1))


def test_label_noise_turns_two_in_a_hundred_into_other_classes() -> None:
    run = BaseRun.of(RECIPE, pd.concat([X] * 10), pd.concat([Y] * 10), SCHEMA, [0, 1, 2], 7)
    (variation,) = family("label_noise")(run, range(6))
    assert variation.labels is not None
    wrong = variation.labels != run.labels
    assert wrong.sum(1).tolist() == [round(0.02 * 10 * N)] * 6
    assert set(variation.labels.unique().tolist()) == {0, 1, 2}
    steps = (variation.labels - run.labels)[wrong] % 3
    assert set(steps.tolist()) == {1, 2}
    assert len({tuple(row) for row in wrong.tolist()}) == 6
    plan = plan_of("label_noise", range(2))
    assert set(plan.weights) == set(plan.order) == {7}
    for i, one in enumerate(tensors(bank(families={"label_noise": 2}))):
        assert near(one, base(outcome=pd.Series(plan.labels[i].numpy(), index=Y.index)))


# ---- rows of other times


def test_history_is_retrained_on_older_windows() -> None:
    years = 2000 + np.arange(N) % 5
    run = BaseRun.of(RECIPE, X, Y, SCHEMA, [0, 1, 2], 7, time=years, window=2)
    assert run.in_use().X.equals(X[years >= 2003])
    parts = family("history")(run, range(6))
    assert [len(part) for part in parts] == [2, 2, 2]
    for part, newest in zip(parts, (2003, 2002, 2001), strict=True):
        assert part.kept is not None
        assert part.emphasis is not None
        inside = (years <= newest) & (years > newest - 2)
        assert (part.kept.numpy() == inside).all()
        # whole blocks of time, of about as many rows each
        first, second = part.emphasis.sum(1).tolist()
        assert abs(first - inside.sum()) <= 3
        assert abs(second - inside.sum()) <= 3
        assert not part.emphasis[:, ~inside].any()
        assert part.weights == part.order
    assert len({seed for part in parts for seed in part.weights}) == 6
    # Without a window: all that there was so far.
    grown = family("history")(BaseRun.of(RECIPE, X, Y, SCHEMA, [0, 1, 2], 7, time=years), range(3))
    assert [part.kept[0].tolist() for part in grown] == [
        (years < end).tolist() for end in (2004, 2003, 2002)
    ]
    # Every model is the fit with its own seed on the rows that were drawn; in one batch the order
    # is no matter.
    big = Recipe(hidden=(6,), epochs=3, batch_size=N, lr=0.01)
    made = bank(big, families={"history": 3, "seed": 1}, time=years, window=2)
    for i, part in enumerate(parts):
        rows = np.repeat(np.arange(N), part.emphasis[0].long().numpy())
        assert near(tensors(made)[i], base(big, Y.iloc[rows], X.iloc[rows], seed=part.weights[0]))
    new = years >= 2003
    assert near(tensors(made)[3], tensors(bank(big, Y[new], X[new], families={"seed": 1}))[0])


def test_history_of_estimators_by_a_column_that_the_schema_lacks() -> None:
    years = pd.to_datetime("2020-01-01") + pd.to_timedelta((np.arange(N) % 3) * 365, unit="D")
    made = bank(
        KNeighborsClassifier(1),
        table=X.assign(when=years),
        families={"history": 4},
        time="when",
        window=1,
    )
    again = bank(KNeighborsClassifier(1), families={"history": 4}, time=years, window=1)
    assert made.origins() == again.origins()
    assert torch.equal(made.scores(X), again.scores(X))
    assert made.families == {"history": 4}
    seen = [{tuple(row) for row in made.model(i).wrapped._fit_X} for i in range(4)]  # listed by age
    for rows, year in zip(seen, (1, 1, 0, 0), strict=True):
        assert rows <= {tuple(row) for row in X[np.arange(N) % 3 == year].to_numpy()}
    whole = bank(Recipe(hidden=(), epochs=1), time=years)
    assert whole.families == {"retrain": 100, "history": 100}


def test_many_times_are_four_periods() -> None:
    order = np.random.default_rng(1).permutation(400)
    assert torch.equal(periods_of(order, 400), torch.tensor(order // 100))
    assert periods_of(np.arange(12), 12).tolist() == list(range(12))
    assert periods_of(["b", "a", "b"], 3).tolist() == [1, 0, 1]
    tied = np.r_[np.zeros(300), np.arange(1, 101)]  # what is of one time stays together
    assert len(set(periods_of(tied, 400)[:300].tolist())) == 1


def test_pool_and_window() -> None:
    years = np.arange(N) % 3
    made = bank(
        KNeighborsClassifier(1), families={"leave_one_out": 1}, time=years, window=1, pool=[5]
    )
    kept = X[(years == 2) & (np.arange(N) != 5)]
    assert np.array_equal(made.model(0).wrapped._fit_X, kept.to_numpy())
    with pytest.raises(SettingError, match="pool must hold rows of the newest 1 periods"):
        bank(families={"leave_one_out": 1}, time=years, window=1, pool=[4])


def test_times_that_cannot_be() -> None:
    for settings, match in (
        ({}, "'history' needs to know how old rows are; pass time="),
        ({"time": "when"}, "no column 'when' for times"),
        ({"time": [1, 2]}, f"one value for each of the {N} rows, got shape"),
        ({"time": np.zeros(N)}, "all rows have the same time"),
        ({"time": np.where(np.arange(N) == 3, np.nan, 1.0)}, "1 values of time are missing"),
        ({"time": np.array([1, "a"] * 30 + [2], dtype=object)}, "cannot be put in order"),
        (
            {"time": np.arange(N) % 3, "window": 3},
            "needs an earlier window: there are 3 periods.*learns from 3",
        ),
        ({"time": np.arange(N) % 3, "window": 0}, "window must be an integer of at least 1"),
        ({"window": 2}, "window= counts periods of time; pass time="),
    ):
        with pytest.raises(SettingError, match=match):
            bank(families={"history": 2}, **settings)


def test_epochs_last_from_half_to_one_and_a_half_times() -> None:
    lengths = plan_of("epochs", range(200), Recipe(epochs=100)).epochs
    assert min(lengths) >= 50
    assert max(lengths) <= 150
    assert min(lengths) < 55
    assert max(lengths) > 145
    assert 95 < sum(lengths) / 200 < 105
    plan = plan_of("epochs", range(3))
    assert len(set(plan.epochs)) > 1
    for name in ("relu", "norm"):
        recipe = RECIPES[name]
        lengths = plan_of("epochs", range(3), recipe).epochs
        for i, one in enumerate(tensors(bank(recipe, families={"epochs": 3}))):
            expected = base(Recipe.of(recipe, epochs=lengths[i]))
            if name == "relu":
                assert near(one, expected)
            else:
                names = (
                    bank(recipe, families={"epochs": range(i, i + 1)}).groups[0].networks.state()
                )
                order = [list(norm().state_dict()).index(n) for n in names]
                assert near(one, [expected[j] for j in order])


def test_width_of_hidden_layers() -> None:
    made = bank(families={"width": 8})
    sizes = [
        group.networks.sizes[1:-1] for group in made.groups if isinstance(group.networks, Stack)
    ]
    assert sizes == [(3, 2), (9, 8), (4, 4), (12, 10)]
    assert [len(group) for group in made.groups] == [2, 2, 2, 2]
    assert made.families == {"width": 8}
    wide = bank(
        Recipe(hidden=(9, 8), epochs=4, batch_size=16, lr=0.01), families={"seed": range(1, 2)}
    )
    assert near(tensors(wide)[0], tensors(bank(families={"width": range(1, 2)}))[0])
    own = bank(RECIPES["tanh"], families={"width": 4})
    assert [group.networks.module(0)[0].out_features for group in own.groups] == [2, 8, 4, 10]
    assert own.scores(X).isfinite().all()


@pytest.mark.parametrize("module", [None, mlp(D, (6, 5), 3), mlp(D, (6, 5), 3).double()])
def test_last_layer_keeps_all_others(module: nn.Module | None) -> None:
    recipe = RECIPE if module is None else Recipe.of(RECIPE, module=module)
    made = tensors(bank(recipe, families={"last_layer": 3}))
    below = base(recipe)
    for one in made:
        assert same(one[:-2], below[:-2])
        assert not near(one[-2:], below[-2:])
        assert one[0].dtype == below[0].dtype
    assert not near(made[0], made[1])
    # The head starts as the recipe draws it: an epoch of tiny steps leaves it there.
    still = Recipe.of(recipe, epochs=1, lr=1e-12)
    (one,) = tensors(bank(still, families={"last_layer": range(1, 2)}))
    head = nn.Sequential(nn.Linear(5, 3, dtype=below[0].dtype))
    drawn = (glorot if module is None else redrawn)(head, 7 + 2)
    assert near(one[-2:], list(drawn.values()))


def test_families_that_cannot_be() -> None:
    with pytest.raises(
        SettingError, match=r"unknown family 'leave_one_ot'; did you mean 'leave_one_out'\?"
    ):
        bank(families={"leave_one_ot": 2})
    for none in (0, -2, range(0), range(3, 3), range(-1, 2), range(0, 4, 2)):
        with pytest.raises(SettingError, match="'seed' needs at least one model"):
            bank(families={"seed": none})
    for odd in (2.5, "3", None):
        with pytest.raises(SettingError, match="'seed' needs a number or a range"):
            bank(families={"seed": odd})
    with pytest.raises(SettingError, match="at least one family"):
        bank(families={})
    assert len(bank(families={"seed": np.int64(2)})) == 2
    for recipe in (RECIPES["tanh"], Recipe(hidden=(), epochs=1)):
        with pytest.raises(SettingError, match=r"'last_layer' needs a network of Linear and ReLU"):
            bank(recipe, families={"last_layer": 1})
    with pytest.raises(SettingError, match="all in Linear"):
        bank(RECIPES["norm"], families={"width": 1})
    with pytest.raises(ModelError, match="2 classes, but 3 names"):
        bank(nn.Linear(D, 2), families={"seed": 1})
    with pytest.raises(SettingError, match="ends in Softmax"):
        bank(nn.Sequential(nn.Linear(D, 3), nn.Softmax(1)), families={"seed": 1})


# ---- the bank


@pytest.mark.parametrize("name", RECIPES)
def test_scores_are_those_of_each_model(name: str) -> None:
    families = {"seed": 3, "leave_one_out": 2} | ({"width": 4} if name == "relu" else {})
    made = bank(RECIPES[name], families=families)
    scores = made.scores(X)
    assert scores.shape == (len(made), N, 3)
    assert torch.equal(made.scores(SCHEMA.encode(X)), scores)
    for n in (1, 5, 8, 9, 33):
        assert torch.equal(made.scores(X[:n]), scores[:, :n])
    assert made.scores(X[:0]).shape == (len(made), 0, 3)
    for i in range(len(made)):
        model = made.model(i)
        with model.eval_mode():
            assert torch.allclose(model.score_frame(X), scores[i], atol=1e-5)
        assert model.classes == made.classes == (0, 1, 2)
    assert (made.predict(X) == scores.argmax(2).numpy()).all()
    with made.model(-1).eval_mode():
        assert torch.allclose(made.model(-1).score_frame(X), scores[-1], atol=1e-5)
    for i in (len(made), -len(made) - 1):
        with pytest.raises(SettingError, match=f"no model {i}"):
            made.model(i)


def test_scores_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = bank(families={"seed": 3})
    whole = made.scores(X)
    monkeypatch.setattr("holdfast.retraining.model_group.SCORED_CELLS", 1)
    assert torch.equal(made.scores(X), whole)


def test_one_logit_and_class_names() -> None:
    outcome = pd.Series(np.where(X.a > 0, "yes", "no"), index=X.index)
    module = nn.Sequential(nn.Linear(D, 4), nn.ReLU(), nn.Linear(4, 1))
    made = bank(
        Recipe(module=module, epochs=30, lr=0.05), outcome, families={"seed": 2}, classes=None
    )
    assert made.classes == ("no", "yes")
    assert made.scores(X).shape == (2, N, 2)
    assert (made.scores(X)[..., 0] == 0).all()
    assert (made.predict(X) == outcome.to_numpy()).mean() > 0.9


def test_join_rename_and_repr() -> None:
    a = bank(families={"seed": 2})
    b = bank(families={"bootstrap": 1, "epochs": 1})
    both = a.join(b, b.renamed("again"))
    assert both.families == {"seed": 2, "bootstrap": 1, "epochs": 1, "again": 2}
    assert len(both) == 6
    assert torch.equal(both.scores(X), torch.cat([a.scores(X), b.scores(X), b.scores(X)]))
    assert repr(both) == (
        "ModelBank(6 models; seed: 2, bootstrap: 1, epochs: 1, again: 2; networks 4-6-5-3; "
        "classes 0, 1, 2)"
    )
    assert b.families == {"bootstrap": 1, "epochs": 1}
    assert a.join().fingerprint() == a.fingerprint()
    two = bank(outcome=Y.clip(0, 1), families={"seed": 1}, classes=[0, 1])
    with pytest.raises(ModelError, match=r"classes \[0, 1, 2\], not \[0, 1\]"):
        a.join(two)
    other = ModelBank.retrain(
        RECIPE, X, Y, hf.Schema.infer(X, scaling="none"), families={"seed": 1}
    )
    with pytest.raises(SchemaError, match="another schema"):
        a.join(other)


def test_from_tables() -> None:
    tables = {"2020": (X[:40], Y[:40]), 2021: (X[20:], Y[20:])}
    made = ModelBank.from_tables(RECIPE, tables, SCHEMA, models=2, seed=7)
    assert made.families == {"2020": 2, "2021": 2}
    assert made.classes == (0, 1, 2)
    first = ModelBank.retrain(
        RECIPE, X[:40], Y[:40], SCHEMA, families={"seed": 2}, classes=[0, 1, 2], seed=7
    )
    assert torch.equal(made.scores(X)[:2], first.scores(X))
    # A class that one table lacks is still a class.
    rare = {"a": (X[Y < 2], Y[Y < 2]), "b": (X, Y)}
    assert ModelBank.from_tables(RECIPE, rare, SCHEMA).scores(X).shape == (2, N, 3)
    with pytest.raises(SettingError, match="at least one table"):
        ModelBank.from_tables(RECIPE, {}, SCHEMA)


def test_fingerprint_knows_every_weight() -> None:
    made = bank(RECIPES["norm"], families={"seed": 2})
    first = made.fingerprint()
    assert bank(RECIPES["norm"], families={"seed": 2}).fingerprint() == first
    seen = {first}
    for value in made.groups[0].networks.state().values():
        for i in range(2):
            kept = value[i].clone()
            value[i].view(-1)[-1:] += 1
            seen.add(made.fingerprint())
            value[i].copy_(kept)
    assert len(seen) == 1 + 2 * len(made.groups[0].networks.state())
    assert made.fingerprint() == first
    assert made.renamed("x").fingerprint() != first


def test_members_find_models_that_two_banks_share(tmp_path: Path) -> None:
    a = bank(families={"seed": 4, "leave_one_out": 2}, pool=[3, 4])
    assert len(a.members()) == 6
    shared = (
        a.members() & bank(families={"leave_one_out": 3}, pool=[9, 4, 8]).renamed("other").members()
    )
    # the model that lacks row 4, whatever its number and the name of its family
    assert len(shared) == 1
    assert a.members().isdisjoint(bank(families={"seed": range(4, 9)}).members())
    assert len(a.members() & bank(families={"seed": range(3, 9)}).members()) == 1
    for other in (
        bank(outcome=(Y + 1) % 3, families={"seed": 4}),
        bank(table=X + 1e-3, families={"seed": 4}),
        bank(Recipe.of(RECIPE, lr=0.02), families={"seed": 4}),
        bank(Recipe.of(RECIPE, epochs=5), families={"seed": 4}),
        bank(Recipe.of(RECIPE, hidden=(6, 4)), families={"seed": 4}),
    ):
        assert a.members().isdisjoint(other.members())
    # The seeds of a head agree here, the layers below do not.
    heads = [bank(families={"last_layer": range(i, i + 1)}, seed=s) for i, s in ((1, 7), (0, 8))]
    assert heads[0].members().isdisjoint(heads[1].members())
    a.save(tmp_path / "a.safetensors")
    assert ModelBank.load(tmp_path / "a.safetensors").members() == a.members()
    # Models that nobody saw being made are told by their weights.
    bare = [ModelGroup("bare", group.networks) for group in a.groups]
    assert len(ModelBank(tuple(bare), SCHEMA, (0, 1, 2), RECIPE, 7).members()) == 6


def test_callers_state_is_untouched() -> None:
    for name in ("relu", "tanh", "norm"):
        module = RECIPES[name].module
        before = copy.deepcopy(module)
        if module is not None:
            module.train()
        state = torch.get_rng_state()
        legacy = np.random.get_state()
        threads = torch.get_num_threads()
        table = X.copy()
        outcome = Y.copy()
        made = bank(RECIPES[name], families={"seed": 2, "label_noise": 1, "bootstrap": 1})
        made.scores(X)
        made.model(0)
        assert torch.equal(state, torch.get_rng_state())
        assert all(np.array_equal(a, b) for a, b in zip(legacy, np.random.get_state(), strict=True))
        assert torch.get_num_threads() == threads
        pd.testing.assert_frame_equal(X, table)
        pd.testing.assert_series_equal(Y, outcome)
        if module is not None and before is not None:
            assert all(m.training for m in module.modules())
            assert same(list(module.state_dict().values()), list(before.state_dict().values()))


# ---- files


@pytest.mark.parametrize(
    "recipe",
    [
        *RECIPES.values(),
        Recipe(module=norm().double(), epochs=1, batch_size=16),
        Recipe(hidden=(), epochs=1),
    ],
)
def test_files_round_trip(recipe: Recipe, tmp_path: Path) -> None:
    made = bank(recipe, families={"seed": 2, "epochs": 1}).join(
        bank(recipe, families={"bootstrap": 2})
    )
    made.save(tmp_path / "b.safetensors")
    state = torch.get_rng_state()
    back = ModelBank.load(tmp_path / "b.safetensors")
    assert torch.equal(state, torch.get_rng_state())
    assert all(same(a, b) for a, b in zip(tensors(made), tensors(back), strict=True))
    assert [v.dtype for v in tensors(back)[0]] == [v.dtype for v in tensors(made)[0]]
    assert torch.equal(made.scores(X), back.scores(X))
    assert back.fingerprint() == made.fingerprint()
    assert back.members() == made.members()
    assert (back.families, back.classes, back.seed) == (made.families, made.classes, made.seed)
    assert back.schema.fingerprint == made.schema.fingerprint
    assert back.recipe.to_dict() == made.recipe.to_dict()
    more = bank(back.recipe, families={"seed": 2})
    assert torch.allclose(more.scores(X), made.scores(X)[:2], atol=1e-5)


def test_class_names_survive_a_file(tmp_path: Path) -> None:
    for outcome in (Y > 0, Y.clip(0, 1).astype("int8"), Y.map({0: "a", 1: "b", 2: "c"})):
        made = bank(outcome=outcome, families={"seed": 1}, classes=None)
        made.save(tmp_path / "b.safetensors")
        back = ModelBank.load(tmp_path / "b.safetensors").classes
        assert back == made.classes
        assert [type(c) for c in back] == [type(c) for c in made.classes]


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("bomb_went_off"),))


def test_files_that_are_no_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "b.safetensors"
    bad = tmp_path / "bad.safetensors"
    bank(families={"seed": 2}).save(path)
    whole = path.read_bytes()
    size = 8 + int.from_bytes(whole[:8], "little")
    for part in (
        b"",
        whole[:4],
        whole[:100],
        whole[: size - 1],
        whole[:size],
        whole[:-1],
        whole[: len(whole) // 2],
    ):
        bad.write_bytes(part)
        with pytest.raises(FileError, match="not a readable bank"):
            ModelBank.load(bad)
    bad.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FileError):
        ModelBank.load(bad)
    torch.save(Bomb(), bad)
    with pytest.raises(FileError):
        ModelBank.load(bad)
    assert not Path("bomb_went_off").exists()
    with pytest.raises(FileError, match="no bank at"):
        ModelBank.load(tmp_path / "none")
    with pytest.raises(FileError):
        ModelBank.load(tmp_path)
    RECIPE.fit(X, Y, SCHEMA).save(bad)
    with pytest.raises(FileError, match="holdfast_bank"):
        ModelBank.load(bad)
    with pytest.raises(FileError, match="cannot write"):
        bank(families={"seed": 1}).save(tmp_path / "no" / "b.safetensors")


def test_files_that_contradict_themselves(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = tmp_path / "b.safetensors"
    bad = tmp_path / "bad.safetensors"
    bank(families={"seed": 2}).save(path)
    with safe_open(path, framework="pt") as file:
        content = json.loads(file.metadata()["holdfast_bank"])
        kept = {name: file.get_tensor(name) for name in list(file.keys())}

    def written(change: Any, given: dict[str, Tensor] = kept) -> Path:
        text = copy.deepcopy(content)
        change(text)
        text = sealed("bank", 1, text, safetensors.in_bytes(given))
        save_file(given, bad, metadata={"holdfast_bank": json.dumps(text)})
        return bad

    assert len(ModelBank.load(written(lambda c: None))) == 2
    for change in (
        lambda c: c.pop("schema"),
        lambda c: c.update(classes=["a", "b"]),
        lambda c: c.update(classes=3),
        lambda c: c.update(seed="x"),
        lambda c: c.update(groups=[]),
        lambda c: c["groups"][0].update(models=3),
        lambda c: c["groups"][0].update(models=0),
        lambda c: c["groups"][0].update(origins=["only one"]),
        lambda c: c["groups"][0].update(architecture=[{"layer": "Exec"}]),
        lambda c: c["groups"][0]["architecture"][0].update(out_features=10**12),
        lambda c: c.update(recipe={"estimator": "os.system"}),
        lambda c: c.update(recipe={"strange": 1}),
        lambda c: c["groups"].append(c["groups"][0]),
    ):
        with pytest.raises(FileError, match="not a readable bank"):
            ModelBank.load(written(change))
    for name in kept:
        with pytest.raises(FileError, match="does not fit its architecture"):
            ModelBank.load(written(lambda c: None, {k: v for k, v in kept.items() if k != name}))
    mixed = kept | {"0/0.weight": kept["0/0.weight"].double()}
    with pytest.raises(FileError, match="mixes kinds of floating-point numbers"):
        ModelBank.load(written(lambda c: None, mixed))


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(D, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(self.a(x))

    with pytest.raises(ModelError, match="cannot write down a Odd layer"):
        bank(Recipe(module=Odd(), epochs=1), families={"seed": 1}).save(tmp_path / "b")
    assert not list(tmp_path.iterdir())


# ---- estimators


@pytest.mark.parametrize("inputs", ["frame", "encoded"])
def test_estimators(inputs: Any) -> None:
    original = Pipeline(
        [("scale", StandardScaler()), ("forest", RandomForestClassifier(n_estimators=4))]
    )
    families = {
        name: 2
        for name in FOR_ESTIMATORS
        if name in FOR_NETWORKS and name not in ("history", "fresh")
    }
    state = torch.get_rng_state()
    legacy = np.random.get_state()
    made = bank(Recipe(estimator=original, inputs=inputs), families=families)
    assert torch.equal(state, torch.get_rng_state())
    assert all(np.array_equal(a, b) for a, b in zip(legacy, np.random.get_state(), strict=True))
    assert not hasattr(original["forest"], "classes_")
    assert original["forest"].random_state is None
    assert made.families == families
    scores = made.scores(X)
    count = 2 * len(families)
    assert scores.shape == (count, N, 3)
    for i in range(count):
        assert torch.equal(made.model(i).score_frame(X), scores[i])
    seeds = [made.model(i).wrapped["forest"].random_state for i in range(count)]
    assert seeds[2:] == [8, 9] * 2 + [7] * 8
    assert len({*seeds[:2], 7, 8, 9}) == 5
    assert len(made.members()) == count
    ranged = bank(Recipe(estimator=original, inputs=inputs), families={"bootstrap": range(1, 2)})
    assert torch.equal(ranged.scores(X)[0], scores[made.family.tolist().index("bootstrap") + 1])
    assert ranged.members() < made.members()


def test_estimators_get_the_rows_of_their_family() -> None:
    nearest = KNeighborsClassifier(1)
    rows = plan_of("bootstrap", range(1)).emphasis[0].long().numpy()
    gone = (~plan_of("leave_share_out", range(1)).kept[0]).nonzero().flatten().tolist()
    labels = plan_of("label_noise", range(1)).labels[0].numpy()
    pool = list(range(N))
    made = bank(
        nearest,
        families=dict.fromkeys(("leave_one_out", "leave_share_out", "bootstrap", "label_noise"), 1),
        pool=pool,
    )
    fits = [made.model(i).wrapped for i in range(4)]
    values = X.to_numpy()
    assert np.array_equal(fits[0]._fit_X, values[1:])
    assert np.array_equal(fits[1]._fit_X, np.delete(values, gone, 0))
    assert np.array_equal(fits[2]._fit_X, np.repeat(values, rows, 0))
    assert np.array_equal(fits[3].classes_[fits[3]._y], labels)
    made = bank(nearest, families={"retrain": 2, "seed_and_order": 2})
    for i in range(2):  # in an order of their own
        again = made.model(i).wrapped._fit_X
        rows = np.repeat(values, plan_of("retrain", range(i, i + 1)).emphasis[0].long().numpy(), 0)
        assert not np.array_equal(again, rows)
        assert np.array_equal(np.sort(again, 0), np.sort(rows, 0))
        shuffled = made.model(2 + i).wrapped._fit_X
        assert not np.array_equal(shuffled, values)
        assert np.array_equal(np.sort(shuffled, 0), np.sort(values, 0))


def test_the_default_is_a_hundred_retrainings() -> None:
    assert bank(Recipe(hidden=(), epochs=1)).families == {"retrain": 100}


# ---- models that there are


def test_a_bank_of_models_that_there_are(tmp_path: Path) -> None:
    from xgboost import XGBClassifier

    nets = [RECIPE.fit(X, Y, SCHEMA, classes=[0, 1, 2], seed=s) for s in (1, 2)]
    bend = RECIPES["norm"].fit(X, Y, SCHEMA, classes=[0, 1, 2])
    trees = XGBClassifier(n_estimators=2, n_jobs=1).fit(X, Y)
    sure = nn.Sequential(mlp(D, (4,), 3), nn.Softmax(1))
    models = [*nets, bend, trees, sure, trees.get_booster(), KNeighborsClassifier(1).fit(X, Y)]
    made = ModelBank.of(models, family="v2", schema=SCHEMA)
    assert made.families == {"v2": 7}
    assert made.recipe is None
    wrapped = [m if isinstance(m, hf.Model) else hf.Model.of(m, SCHEMA) for m in models]
    assert made.origins() == [m.fingerprint() for m in wrapped]
    scores = made.scores(X)
    for i, model in enumerate(wrapped):
        with model.eval_mode():
            assert torch.allclose(model.score_frame(X).double(), scores[i].double(), atol=1e-6)
        assert (made.model(i).predict(X) == model.predict(X)).all()
    joined = bank(families={"seed": 2}).join(made)
    assert joined.families == {"seed": 2, "v2": 7}
    assert isinstance(ModelBank.of(nets[0]).groups[0].networks, Stack)
    assert ModelBank.of([nets[0]], family="again").members() == {nets[0].fingerprint()}
    ModelBank.of(nets).save(tmp_path / "b")
    back = ModelBank.load(tmp_path / "b")
    assert back.recipe is None
    assert back.origins() == [m.fingerprint() for m in nets]
    cfs = hf.MinCost().explain(nets[0], X[nets[0].predict(X) != 1][:3], 1)
    held = [nets[1].predict(cfs.after) == 1]
    assert (
        hf.audit(cfs, ModelBank.of(nets[1])).survival()[cfs.found].tolist()
        == np.mean(held, 0)[cfs.found].tolist()
    )


def test_models_that_make_no_bank() -> None:
    model = RECIPE.fit(X, Y, SCHEMA, classes=[0, 1, 2])
    with pytest.raises(SettingError, match="at least one model"):
        ModelBank.of([])
    with pytest.raises(
        ModelError, match=r"LogisticRegression does not say which columns it takes; pass schema="
    ):
        ModelBank.of(LogisticRegression().fit(X, Y))
    with pytest.raises(ModelError, match="has the classes"):
        ModelBank.of([model, LogisticRegression().fit(X, Y > 0)], schema=SCHEMA)
    other = hf.Schema.infer(X * 2)
    with pytest.raises(SchemaError, match="another schema"):
        ModelBank.of([model, LogisticRegression().fit(X, Y)], schema=other)


# ---- parts of a bank


def test_subsets() -> None:
    nets = bank(families={"bootstrap": 2, "seed": 3, "width": 5})
    whole = nets.join(bank(KNeighborsClassifier(1), families={"bootstrap": 2}))
    scores = whole.scores(X)
    origins = np.array(whole.origins())
    for some in (
        [0, 11],
        [9, 1, 1],
        slice(2, 9),
        slice(None, None, 3),
        -1,
        np.arange(12) % 2 == 0,
        torch.tensor([4]),
        range(3, 7),
    ):
        part = whole[some]
        places = np.unique(
            np.atleast_1d(np.arange(12)[np.asarray(some) if not isinstance(some, slice) else some])
        )
        assert torch.equal(part.scores(X), scores[places])
        assert part.origins() == origins[places].tolist()
        assert part.family.tolist() == whole.family[places].tolist()
        assert part.fingerprint() != whole.fingerprint()
    assert whole["bootstrap"].origins() == origins[[0, 1, 10, 11]].tolist()
    assert whole.subset(["width", "seed"]).origins() == origins[2:10].tolist()
    assert whole.subset("bootstrap", [-1]).origins() == [origins[11]]
    assert whole.subset(models=slice(1, 3)).origins() == origins[1:3].tolist()
    assert len(whole[[]]) == 0
    with pytest.raises(SettingError, match="no family 'widht'; did you mean 'width'"):
        whole["widht"]
    with pytest.raises(IndexError, match="there is no model 12: there are 12"):
        whole[12]
    with pytest.raises(SettingError, match="one value for each of the 12 models"):
        whole[[True, False]]


def test_split_shares_no_model_and_uses_the_first_ones_first() -> None:
    whole = bank(families={"retrain": 9, "width": 8})
    parts = whole.split(guide=2, calibration={"retrain": 3}, audit={"retrain": 4, "width": 6})
    assert parts.guide.families == {"retrain": 2, "width": 2}
    assert parts.calibration.families == {"retrain": 3}
    assert parts.audit.families == {"retrain": 4, "width": 6}
    assert len(set[str]().union(*(part.members() for part in parts))) == 17
    assert parts.guide["retrain"].origins() == whole.origins()[:2]
    assert parts.audit["retrain"].origins() == whole.origins()[5:9]
    assert len(parts.guide["width"].groups) == 2  # of every architecture some
    assert [len(group) for group in parts.audit["width"].groups] == [1, 1, 2, 2]
    more = bank(families={"width": 8, "retrain": 12}).split(guide=2)
    assert more.guide.members() == parts.guide.members()
    assert (len(more.calibration), len(more.audit)) == (0, 0)
    assert all((part.seed, part.classes) == (whole.seed, whole.classes) for part in parts)
    trees = bank(RandomForestClassifier(2), families={"retrain": 3}).split(guide=1, audit=2)
    assert trees.guide.members().isdisjoint(trees.audit.members())


def test_split_takes_copies_once() -> None:
    # four epochs have few lengths between half and one and a half times
    whole = bank(families={"epochs": 12})
    count = len(whole.members())
    assert count < 12
    parts = whole.split(guide=1, audit=count - 1)
    assert len(parts.audit.members()) == count - 1
    assert parts.guide.members().isdisjoint(parts.audit.members())
    twice = whole.join(whole.renamed("other"))
    assert twice.split(guide={"epochs": 2}).guide.families == {"epochs": 2}
    with pytest.raises(
        SettingError, match="has 0 different models of the family 'other', the split needs 1"
    ):
        twice.split(guide={"other": 1})


def test_splits_that_cannot_be() -> None:
    whole = bank(families={"retrain": 5})
    with pytest.raises(
        SettingError, match=r"has 5 different .* 'retrain', .* needs 6 \(2 for guide, 4 for audit\)"
    ):
        whole.split(guide=2, audit=4)
    with pytest.raises(
        SettingError, match="guide: the bank has no family 'seed'; known: 'retrain'"
    ):
        whole.split(guide={"seed": 1})
    with pytest.raises(SettingError, match="audit must be an integer of at least 0, got -1"):
        whole.split(guide=1, audit=-1)
    with pytest.raises(SettingError, match="at least one model"):
        whole.split(guide=0)


def test_workers_make_no_difference() -> None:
    forest = RandomForestClassifier(n_estimators=3)
    one = bank(forest, families={"seed": 2, "leave_one_out": 2}, workers=1)
    two = bank(forest, families={"seed": 2, "leave_one_out": 2}, workers=2)
    assert torch.equal(one.scores(X), two.scores(X))
    assert one.fingerprint() == two.fingerprint()
    with pytest.raises(SettingError, match="workers must be at least 1, got 0"):
        bank(forest, families={"seed": 1}, workers=0)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in FOR_ESTIMATORS])
def test_families_that_need_a_network(name: str) -> None:
    with pytest.raises(
        SettingError, match=f"family '{name}' needs a network; for estimators there are 'retrain'"
    ):
        bank(LogisticRegression(), families={name: 1})


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in FOR_NETWORKS])
def test_families_that_need_an_estimator(name: str) -> None:
    with pytest.raises(
        SettingError, match=f"family '{name}' needs an estimator; for networks there are 'retrain'"
    ):
        bank(families={name: 1})


def test_networks_and_estimators_in_one_bank_on_a_mixed_table() -> None:
    table = mixed_table(60)
    schema = mixed_schema(table)
    outcome = pd.Series(np.where(table.income > 3000, "good", "bad"), index=table.index)
    nets = ModelBank.retrain(RECIPE, table, outcome, schema, families={"seed": 2})
    trees = ModelBank.retrain(
        Recipe(estimator=RandomForestClassifier(3), inputs="encoded"),
        table,
        outcome,
        schema,
        families={"seed": 2},
    )
    both = nets.join(trees)
    scores = both.scores(table)
    assert scores.shape == (4, 60, 2)
    for i in range(4):
        with both.model(i).eval_mode():
            assert torch.allclose(
                both.model(i).score_frame(table).double(), scores[i].double(), atol=1e-5
            )
    assert torch.equal(scores[2:], trees.scores(table))
    for group, part in zip(both.groups, scores.split(2), strict=True):  # rows in either precision
        for dtype in (torch.float32, torch.float64):
            assert torch.allclose(
                group.scores(table, schema.encode(table, dtype)).double(), part.double(), atol=1e-5
            )
    assert set(both.predict(table).flatten()) <= {"good", "bad"}
