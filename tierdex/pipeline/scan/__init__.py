"""`spark.read.format("tierdex")`: which files and pages a scan reads, and the columns that it returns."""
