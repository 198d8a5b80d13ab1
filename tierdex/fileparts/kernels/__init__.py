"""Kernels and intrinsics that both formats stand on: compilation, checksums, hashing, the fuse filter."""
