"""Studies of what answers are worth: metrics, comparisons, attacks and bounds."""
