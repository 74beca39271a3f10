"""DeltaState: one row for each key, with the txid that wrote it."""
