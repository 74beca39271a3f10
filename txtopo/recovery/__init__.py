"""What outlives a process, and how a start puts it in order.

``coordinator_state`` keeps what a coordinator must remember, ``recover`` settles what the last process left half-done,
``divergence`` refuses state and tables that do not belong together, and ``diagnosis`` and ``repair`` mend them.
"""
