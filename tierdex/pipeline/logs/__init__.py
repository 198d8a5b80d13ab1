"""`format("tierdex-log")`: the published messages of logs as rows, read once or as a stream."""
