"""The cheapest change for a tree model, with proof: branch and bound over boxes of cells."""
