"""Reading tables without a topology: the present, the past, several tables at one transaction, and their history."""
