"""The background path of a file: sealed -> compacted -> uploaded, and merge, expiry, garbage, scrub."""
