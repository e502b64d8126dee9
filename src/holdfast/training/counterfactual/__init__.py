"""Counterfactual training: a network that learns from the counterfactuals it gives while it
learns."""
