"""Which files there are: followers of manifests and folders, quarantine, freshness."""
