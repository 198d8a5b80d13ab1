"""The chained form of an index file: written by head insertion, looked up while it is written."""
