"""The commit phase: transactions in txid order, each with a write buffer, and their Delta writes made as a group."""
