"""The code of a topology: what is submitted, where a daemon keeps it, and how it gets to the other daemons."""
