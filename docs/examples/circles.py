# %% [markdown]
# # Counterfactual training in two dimensions
#
# A network that learns from its own counterfactuals gives answers that lie among the
# data. With two columns that can be seen. `x1` is protected: nobody can change it, and
# the network is to depend on it less.

# %%
import holdfast as hf
from holdfast.render.charts.paths import decision_paths

data = hf.datasets.circles(n=1200)
schema = data.schema.change(x1={"change": "fixed"})
train, test = data.split()
kinds = {"plain": {"objective": "plain"}, "counterfactual": {"objective": "full"}}
trained = hf.train_counterfactual(
    hf.Recipe(hidden=(32, 32), epochs=30), train.X, train.y, schema, variants=kinds
)

# %% [markdown]
# The same people before both networks, by the same method.

# %%
free = {name: trained.member(name).with_schema(data.schema) for name in kinds}
wanted = free["plain"].classes[1]
refused = test.X[(free["plain"].predict(test.X) != wanted).to_numpy()].head(12)
answers = {
    name: hf.Descent.generic().explain(model, refused, wanted)
    for name, model in free.items()
}
for name, cfs in answers.items():
    right = (free[name].predict(test.X) == test.y).mean()
    print(f"{name}: right {right:.0%}, found {cfs.found.mean():.0%}")

# %%
decision_paths(free, test.X, test.y, {"all may change": answers}, wanted).save(
    "circles.png"
)

# %% [markdown]
# ![Two maps with arrows from rows to their counterfactuals](circles.png)
