"""Follows a log of another system: its messages are indexed as they come, from our watermark on."""
