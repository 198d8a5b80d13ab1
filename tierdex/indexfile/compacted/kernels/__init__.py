"""Kernels of the compacted form: packing, lookups, verification."""
