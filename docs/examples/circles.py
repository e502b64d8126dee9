# %% [markdown]
# # Counterfactual training in two dimensions
#
# A network that learns from its own counterfactuals is sure of itself only where there
# are data. With two columns that can be seen. `x1` is protected while it learns: nobody
# can change it.

# %%
import holdfast as hf
from holdfast.render.charts.paths import decision_paths

train, test = hf.datasets.circles(n=1200).split()
kinds = {"plain": {"objective": "plain"}, "counterfactual": {"objective": "full"}}
recipe = hf.Recipe(hidden=(32, 32), epochs=40)
schema = train.schema.change(x1={"change": "fixed"})
trained = hf.train_counterfactual(recipe, train.X, train.y, schema, variants=kinds)
models = {name: trained.member(name).with_schema(train.schema) for name in kinds}

# %% [markdown]
# The same people before both networks, by the same method, with both columns free: the
# smallest change after which the network is 90 % sure.

# %%
refused = test.X[(models["plain"].predict(test.X) == "no").to_numpy()].head(12)
wanted = hf.Target("yes", probability=0.9)
answers = {}
for name, model in models.items():
    cfs = hf.MinCost(norm=2).explain(model, refused, wanted)
    answers[name] = cfs
    right = (model.predict(test.X) == test.y).mean()
    radius = (cfs.after["x1"] ** 2 + cfs.after["x2"] ** 2).mean() ** 0.5
    print(
        f"{name}: right {right:.0%}, found {cfs.found.sum()}, {radius:.2f} off centre"
    )

decision_paths(models, test.X, test.y, {"90 % sure": answers}, "yes").save(
    "circles.png"
)

# %% [markdown]
# ![Two maps with arrows from rows to their counterfactuals](circles.png)
#
# Both networks know the circles apart. The plain one is just as sure at the edge of its
# class as in the middle, so that its answers stop at the edge, where nobody is.
