"""Numba kernels of the journal."""
