"""Puts: from a checked entry to the active file, and the levels of acknowledgement."""
