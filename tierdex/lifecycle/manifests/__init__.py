"""The manifest of a node: its rows, its commits, their bytes, and how it is read from the store."""
