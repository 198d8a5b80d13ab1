"""Numba kernels: the loops over items. They know arrays and numbers, nothing of files."""
