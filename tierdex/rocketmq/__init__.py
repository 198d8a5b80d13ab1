"""The format of RocketMQ's tiered-store index files: opened, queried, verified and written in place."""
