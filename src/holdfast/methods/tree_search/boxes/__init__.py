"""The cheapest change of a tree model's answer, with proof: branch and bound over boxes of cells."""
