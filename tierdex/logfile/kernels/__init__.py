"""Numba kernels of both forms of a log file."""
