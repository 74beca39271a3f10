"""Delta tables as states.

``log`` implements Delta's protocol: location, fence, ownership, data files. ``keyed`` is DeltaState, ``rows`` is
DeltaRows and ``expiring`` DeltaExpiringRows; all share the modules here. ``read`` reads tables without a topology, now
or as of a past transaction.
"""
