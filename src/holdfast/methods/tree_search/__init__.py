"""Search over the cells that the thresholds of a tree model cut the table into."""
