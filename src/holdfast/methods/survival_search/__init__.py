"""The cheapest change that holds on retrained models, searched for against a bank of them."""
