"""A cluster of daemons."""
