"""One file per way to find an answer."""
