"""The log's index: filled from the written messages, and asked for the messages of a key."""
