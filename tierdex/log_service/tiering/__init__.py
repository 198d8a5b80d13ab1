"""What becomes of sealed files of the log: compacted, published, merged, expired."""
