"""The PySpark connector. Imports pyspark lazily, so that the rest of the package never needs it."""
