"""The builders: they take down what is declared, check it before anything runs, and split it into the two phases."""
