"""What commands share: options, results, progress, warnings, exits."""
