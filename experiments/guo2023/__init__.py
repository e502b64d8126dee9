"""Guo et al. 2023, RoCourseNet.

Paper: guo2023 Datasets, Table 1, Table 2, Figure 3, Figure 4, Figure 5, Figure 6, Table 3, Table 4,
Table 5, Table 6, Table 7, Baseline VanillaCF-Random, Table 8, Table 9, Figure 10, Figure 12, Table
10, Table 11.
"""
