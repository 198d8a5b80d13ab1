"""The Model Context Protocol: lookups for assistants, over the HTTP API and with its rights."""
