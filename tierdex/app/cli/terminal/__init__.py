"""What commands share of the terminal: options, results, progress, warnings, and how a command ends."""
