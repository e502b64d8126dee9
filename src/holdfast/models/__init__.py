"""Models of every kind behind one interface: a batch of rows in, a batch of scores out."""
