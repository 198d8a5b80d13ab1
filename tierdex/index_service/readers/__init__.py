"""Files as queries see them: one reader a form, caches of sidecars and pages, entries."""
