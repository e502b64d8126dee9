"""Höltgen et al. 2021, DeDUCE."""
