"""Messages with a `deliver_at`: how they wait, and how they are delivered when they are due."""
