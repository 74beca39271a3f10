"""Audit and replay: prove from journal and tables that every transaction was committed once."""
