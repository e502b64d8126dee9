"""Counterfactuals for image classifiers."""
