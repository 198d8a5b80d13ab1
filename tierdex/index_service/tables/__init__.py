"""Tables of a lake that are followed: which of their files and rows are live, at which snapshot."""
