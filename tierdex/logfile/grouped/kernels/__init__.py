"""Numba kernels of the grouped form."""
