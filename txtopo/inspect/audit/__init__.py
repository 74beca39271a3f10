"""Audit and replay: verify from journal and tables that every transaction was committed once."""
