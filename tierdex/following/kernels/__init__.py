"""Numba kernels of followed logs. They know bytes and numbers, nothing of sources."""
