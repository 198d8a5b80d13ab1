"""`build`, `index_table` and `index_log`: indexes that Spark builds, and the rows that they point at."""
