"""Plans that hold: from a fitted model to what each person can change, what it costs, and how
surely the model's next version accepts it."""
