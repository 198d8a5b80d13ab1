"""The format of one log file: journal and grouped form, bytes in, messages out."""
