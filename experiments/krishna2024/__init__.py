"""Krishna et al. 2024, On the Trade-offs between Adversarial Robustness and Actionable
Explanations."""
