"""The driver: the process that runs one topology."""
