"""What requests and answers of the HTTP service hold: models by noun, and how their values are checked."""
