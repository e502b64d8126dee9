"""Black et al. 2022, Consistent Counterfactuals for Deep Models."""
