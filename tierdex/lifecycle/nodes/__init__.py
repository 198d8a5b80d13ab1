"""The right to commit to the manifest of a node: its owner, jobs, and processes that act for a lost owner."""
