"""Appends: rows get their offsets, wait in the stage, and are committed in groups to the active journal."""
