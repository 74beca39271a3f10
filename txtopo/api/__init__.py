"""What users write and are given: spouts, bolts, collectors, tuples, fields, groupings, states and stores."""
