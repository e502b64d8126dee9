# %% [markdown]
# # Drift, year by year
#
# Loans of the US Small Business Administration come with their year. A model of 1999 to
# 2001 gives advice; do the models of later years honour it? Where the data are not at
# hand (`HOLDFAST_DATA`), a synthetic shift takes their place.

# %%
import altair as alt
import pandas as pd
from sklearn.linear_model import LogisticRegression

import holdfast as hf

try:
    data = hf.datasets.load("sba_loan")
except hf.HoldfastError:
    data = hf.datasets.load("covariate_shift")
real = data.name == "sba_loan"
today = [1999, 2000, 2001] if real else ["before"]
later = [2002, 2003, 2004, 2005, 2006] if real else ["after"]
wanted = "paid" if real else "yes"
recipe = hf.Recipe(estimator=LogisticRegression(max_iter=500), inputs="encoded")


def rows_of(years):
    """About 900 rows, spread over these years."""
    rows = data.parts.isin(years).to_numpy().nonzero()[0]
    return data.take(rows[:: max(1, len(rows) // 900)])


# %% [markdown]
# Models of earlier years may guide the search too (`time=`): what three years had in
# common is likelier to last.

# %%
rows = rows_of(today)
model = recipe.fit(rows.X, rows.y, data.schema)
refused = rows.X[(model.predict(rows.X) != wanted).to_numpy()].head(20)
smallest = hf.MinCost(norm=1).explain(model, refused, wanted)
plans = hf.Recourse(
    model,
    rows.X,
    rows.y,
    hold=0.9,
    banks=hf.Banks(
        recipe=recipe,
        time=rows.parts if real else None,
        models={"guide": 40, "calibration": 50, "audit": 50},
    ),
).plans(refused, wanted)

# %%
models = [
    recipe.fit(part.X, part.y, data.schema)
    for part in map(rows_of, ([y] for y in later))
]
shares = pd.DataFrame(
    {
        name: hf.audit(cfs, models).by_model().astype(float).mean().to_numpy()
        for name, cfs in {"smallest changes": smallest, "plans": plans.cfs}.items()
    },
    index=[str(year) for year in later],
)
print(shares.round(2).to_string())
table = shares.rename_axis("model of").reset_index().melt("model of", value_name="hold")
alt.Chart(table).mark_line(point=True).encode(
    x=alt.X("model of", title="Model of", axis=alt.Axis(labelAngle=0)),
    y=alt.Y("hold", title="Answers that it accepts", axis=alt.Axis(format="%")),
    color=alt.Color("variable", title=None),
).properties(width=480, height=280).save("drift.svg")

# %% [markdown]
# ![The share of answers that the models of later years accept](drift.svg)
#
# A certificate covers new data of the same kind, not another economy. Here nearly all
# plans outlive five years all the same; of the smallest changes a good part is lost
# every year.
