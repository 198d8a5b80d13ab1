"""The library of compiled kernels that a platform wheel brings."""
