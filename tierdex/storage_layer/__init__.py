"""Bytes by key: one contract, several stores, wrappers that each add one concern."""
