"""The wire's forms of bodies: JSON and Arrow, entries and lookups."""
