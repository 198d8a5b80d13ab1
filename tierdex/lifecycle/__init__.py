"""States, folders, manifest, ownership, recovery, retention: knows files, not what is in them."""
