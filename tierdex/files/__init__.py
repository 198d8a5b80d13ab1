"""Files of users, read by ranges: Parquet rows and pages, and templates of keys over their columns."""
