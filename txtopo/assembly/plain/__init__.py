"""A run of a plain topology: from its start on Spark to its report."""
