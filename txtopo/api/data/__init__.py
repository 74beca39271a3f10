"""The data model: tuples, the names and types of their values, and the copies of them that user code is given."""
