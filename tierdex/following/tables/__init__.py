"""Tables of a lake, Delta's and Iceberg's: their snapshots, their files, their deleted rows."""
