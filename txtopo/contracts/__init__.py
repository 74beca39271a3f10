"""What users write, and what txtopo guarantees them for it: spouts, bolts, states and stores."""
