"""Requests to forget entries: what readers hide, where the entries lie, and how files lose them."""
