"""Shipped test kits: contract suites, faulty parts, a simulated disk. Nothing imports this package."""
