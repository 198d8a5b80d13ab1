"""Bodies from and to the wire: JSON and Arrow, entries and lookups."""
