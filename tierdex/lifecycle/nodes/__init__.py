"""Who may commit to the manifest of a node: its owner, jobs, and those who act for an owner that is gone."""
