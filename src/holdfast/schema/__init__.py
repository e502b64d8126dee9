"""What a table holds and what may change: features, rules, the encoding, and the rows a person can
reach."""
