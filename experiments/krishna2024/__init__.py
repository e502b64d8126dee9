"""Krishna et al. 2024, Trade-offs between Adversarial Robustness and Actionable Explanations."""
