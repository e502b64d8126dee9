"""Guo et al. 2023, RoCourseNet."""
