"""Experiments of papers, run again: what was reported beside what was measured."""
