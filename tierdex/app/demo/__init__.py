"""`tierdex demo`: a year of real flights."""
