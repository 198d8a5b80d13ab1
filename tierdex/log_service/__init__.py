"""The message log: append, commit, read and recover the messages of one data folder."""
