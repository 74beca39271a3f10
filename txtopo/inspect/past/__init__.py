"""What journal and tables say: of one transaction, of all, and of the difference to others."""
