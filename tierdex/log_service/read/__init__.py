"""Reads of queues by offset, in every file that holds a part of them."""
