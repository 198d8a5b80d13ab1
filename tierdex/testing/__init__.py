"""Shipped test kits: contract suites, faulty stores, a simulated disk. No module imports this package."""
