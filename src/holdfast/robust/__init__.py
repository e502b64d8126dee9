"""Answers that survive a change of the model."""
