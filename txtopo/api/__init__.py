"""The interfaces that users implement or call: spouts, bolts, collectors, tuples, fields, groupings, states, stores."""
