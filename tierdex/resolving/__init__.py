"""From an entry to the message itself: where each topic's messages are, fetching, decoding, masking."""
