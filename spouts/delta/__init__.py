"""Delta tables as sources."""
