"""Ratios of the index to the stores that one would otherwise embed, and to a floor in C."""
