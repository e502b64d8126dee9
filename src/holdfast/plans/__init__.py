"""Plans that hold: from a fitted model to what each person can change, what it costs, and how sure
it is that the model's next version keeps the word."""
