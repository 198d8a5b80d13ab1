"""Kits for tests: the contract of a store as a suite, a store that fails, the components of an open index.

No module imports them.
"""
