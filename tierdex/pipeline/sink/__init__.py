"""`df.write.format("tierdex")`: rows become compacted files, which the driver publishes."""
