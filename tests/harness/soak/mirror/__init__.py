"""Changes of a database, applied to a table while its process is killed."""
