"""What a command works on: the index, log, file or Spark session that its options name."""
