"""Kernels of the message log: offsets of queues, and single messages."""
