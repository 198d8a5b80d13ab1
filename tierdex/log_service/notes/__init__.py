"""The small files of a log's folder: what they say, and their copies in the store."""
