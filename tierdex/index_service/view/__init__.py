"""The files of an index: followers of manifests and folders, quarantine, freshness."""
