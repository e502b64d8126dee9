"""Models made again: recipes, families of retrained models, and banks of them."""
