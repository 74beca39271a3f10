"""The code of a topology: what is submitted, and how it gets to the other daemons."""
