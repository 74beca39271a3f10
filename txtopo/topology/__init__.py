"""The graph of a topology: building it, checking it, and splitting it into the two phases."""
