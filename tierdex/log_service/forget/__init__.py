"""Requests to forget messages: what they hide, and what they remove from files."""
