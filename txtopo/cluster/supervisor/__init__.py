"""The supervisor: the daemon that starts, watches, restarts and ends drivers."""
