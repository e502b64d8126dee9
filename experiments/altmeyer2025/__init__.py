"""Altmeyer et al. 2025, Counterfactual Training."""
