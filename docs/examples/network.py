# %% [markdown]
# # A network, retraining, and what certainty costs
#
# A network that is trained again with other random numbers is another network. How many
# of them accept an answer, and what does it cost to convince more of them?

# %%
import holdfast as hf

data = hf.datasets.overlapping(n=600)
train, test = data.split()
recipe = hf.Recipe(hidden=(16,), epochs=30)
model = recipe.fit(train.X, train.y, data.schema, classes=["no", "yes"])
refused = test.X[model.predict(test.X) == "no"].head(30)

# %% [markdown]
# Smallest changes end just where this network changes its mind. Networks that are
# trained on rows drawn again change theirs elsewhere, and most refuse these answers.

# %%
smallest = hf.MinCost(norm=2).explain(model, refused, target="yes")
bank = hf.ModelBank.retrain(
    recipe,
    train.X,
    train.y,
    data.schema,
    families={"retrain": 100},
    classes=["no", "yes"],
)
audit = hf.audit(smallest, bank)
print(f"smallest changes hold on {audit.survival().mean():.0%} of {len(bank)} networks")

# %% [markdown]
# `Recourse` trains networks that stand for new data, and finds for everybody the
# cheapest plan at each level of certainty. All networks of a bank train at once, in one
# stack of tensors.

# %%
recourse = hf.Recourse(
    model,
    train.X,
    train.y,
    hold=0.9,
    banks=hf.Banks(
        recipe=recipe, models={"guide": 40, "calibration": 60, "audit": 100}
    ),
)
frontier = recourse.frontier(refused, "yes")
print(frontier.costs().median().round(2).to_string())
frontier.plot().save("network.svg")

# %% [markdown]
# ![Cost against certainty, a line per person](network.svg)
#
# On top of the picture stands how many people can reach a level.
