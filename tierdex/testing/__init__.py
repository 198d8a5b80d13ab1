"""Kits for authors of a store: the contract as a test suite, a store that fails. No module imports them."""
