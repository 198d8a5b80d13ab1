"""One query: plan, fast path from memory, executor, pages of answers."""
