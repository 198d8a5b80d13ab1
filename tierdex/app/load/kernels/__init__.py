"""Compiled code of loading."""
