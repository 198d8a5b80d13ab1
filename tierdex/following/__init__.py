"""Follows a log that others keep: its messages are indexed as they come, from our watermark on."""
