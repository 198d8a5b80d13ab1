"""What an opening finds in the folder of a log, and what it repairs or takes over."""
