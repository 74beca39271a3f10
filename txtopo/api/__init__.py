"""What users implement or call: states and stores here, spouts and bolts in ``components``, tuples in ``data``."""
