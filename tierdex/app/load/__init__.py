"""Reads files of rows (CSV, JSONL, Parquet) by column, with the exact place of every row."""
