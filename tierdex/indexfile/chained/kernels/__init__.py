"""Kernels of the chained form: insertion, chain walks, lookups, batches."""
