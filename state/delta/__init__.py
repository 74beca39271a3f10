"""Delta tables as states.

``log`` speaks Delta's protocol: location, fence, ownership, data files. ``keyed`` is DeltaState, ``rows`` is DeltaRows;
the modules here are what both share. ``read`` looks at tables without a topology, now or as of a past transaction.
"""
