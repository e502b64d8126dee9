"""Krishna et al. 2024, Trade-offs between Adversarial Robustness and Actionable Explanations.

Paper: krishna2024 Figure 6, Figure 7, Figure 13, Figure 15.
"""
