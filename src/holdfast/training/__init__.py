"""Models that give better answers: adversarial training, kernel machines, counterfactual
training."""
