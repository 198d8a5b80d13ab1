"""Numba kernels of the codecs."""
