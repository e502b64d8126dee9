"""What answers are worth: metrics, audits against retrained models, comparisons, attacks and
bounds."""
