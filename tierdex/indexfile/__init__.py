"""The format of one index file: bytes in, bytes out. Knows neither stores nor states."""
