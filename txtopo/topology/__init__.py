"""The graph of a topology: how it is built, checked, and cut into the two phases."""
