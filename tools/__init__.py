"""Programs of the repository itself: generated documents, and what CI looks at."""
