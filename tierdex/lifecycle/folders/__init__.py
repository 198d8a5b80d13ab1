"""The data folder: its lock, its small files, the moves between its state folders, and its recovery."""
