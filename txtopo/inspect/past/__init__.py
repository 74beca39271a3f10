"""What journal and tables say: of one transaction, of tables, and of the difference to others."""
