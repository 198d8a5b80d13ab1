"""Many lookups in one call: columns in, matches by file, answers or an Arrow table out."""
