"""Fitted scikit-learn, XGBoost and LightGBM models as equivalent scorers of encoded rows: `build`
combines what goes in (`preprocessing`), the model (`differentiable`, or trees, `from_*`), and its
`decision_rule`."""
