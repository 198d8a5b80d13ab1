"""The compacted form of an index file: pages in hash order, directory, filter, sidecar."""
