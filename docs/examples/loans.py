# %% [markdown]
# # Loans and boosted trees
#
# A lender scores applicants with XGBoost. What should somebody change who is turned
# down? And does the advice outlive the next training?

# %%
from xgboost import XGBClassifier

import holdfast as hf

train, test = hf.datasets.german_credit().split()
fixed = ["checking_status", "credit_history", "purpose", "age"]
savings = ["no known savings", "<100", "100<=X<500", "500<=X<1000", ">=1000"]
employment = ["unemployed", "<1", "1<=X<4", "4<=X<7", ">=7"]
levels = {"savings_status": savings, "employment": employment}
down = ["credit_amount", "duration", "installment_commitment"]
columns = [*fixed, *levels, *down, "other_parties", "other_payment_plans"]
strings = {
    name: "category" for name in train.X[columns].select_dtypes(exclude="number")
}
X = train.X[columns].astype(strings)
applicants = test.X[columns].astype(strings)
scores = XGBClassifier(
    n_estimators=40, max_depth=2, learning_rate=0.2, enable_categorical=True, n_jobs=1
)
y = (train.y == "approved").astype(int)
scores.fit(X, y)
denied = applicants[scores.predict(applicants) == 0].head(10)
print(f"right about {scores.score(applicants, test.y == 'approved'):.0%}")

# %% [markdown]
# `Recourse` takes the fitted booster as it is. Its `model` is the same booster behind a
# schema that says what people can change. For today's model, `TreeSearch` finds the
# smallest change along the thresholds of the trees.

# %%
recourse = hf.Recourse(
    scores,
    X,
    y,
    classes=["denied", "approved"],
    hold=0.8,
    fixed=fixed,
    up=list(levels),
    down=down,
    ordered=levels,
    banks=hf.Banks(models={"guide": 60, "calibration": 100, "audit": 200}),
)
smallest = hf.TreeSearch(norm=1).explain(recourse.model, denied, "approved")
print(smallest.changes().head(5).to_string(index=False))

# %% [markdown]
# Now the same answers before 200 models that stand for training on new data, and beside
# them the plans that were made to hold. Trees that learn from 750 people differ much
# from one another: many people get a plan that is called *fragile*, and the lender
# learns that it should not promise anything to them.

# %%
plans = recourse.plans(denied, "approved")
audit = hf.audit(smallest, recourse.bank.audit)
print(f"smallest changes hold on {audit.survival().mean():.0%} of the judges")
print(f"plans hold on {plans.survival.mean():.0%} of them")
print(f"{plans.certified.sum()} of {len(plans)} plans are certified")
plans.audit.plot(hold=0.8).save("loans.svg")

# %% [markdown]
# ![Cost of each plan against the share of judges that accept it](loans.svg)
