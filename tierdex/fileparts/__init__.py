"""What every file format of ours needs: part table, footer, checksums, dictionaries, filter, kernels."""
