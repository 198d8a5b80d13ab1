"""The applications: HTTP service, command line, console. Only they wire clients, stores and indexes."""
