"""`merge`: small files become few large ones."""
