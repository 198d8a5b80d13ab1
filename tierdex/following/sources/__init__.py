"""The logs that can be followed, a module each; a client library is imported when its log is followed."""
