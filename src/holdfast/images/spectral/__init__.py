"""Spectral normalisation of convolutions, and how far a network stretches distances."""
