"""`tierdex probe`: canaries that are put and looked up again, and the metrics about them."""
