"""One file per paper, named by its citation."""
