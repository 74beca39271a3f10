"""Tables of SQL databases as sources."""
