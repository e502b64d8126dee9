"""How real an image looks to a generative adversarial network."""
