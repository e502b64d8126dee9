"""Networks as tensors: architectures in words, hand-written gradients, and stacks of many networks
at once."""
