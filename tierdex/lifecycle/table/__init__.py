"""The files that the running process knows, by number, for lookups that read them at one moment."""
