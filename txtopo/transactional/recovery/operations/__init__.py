"""What users do to a topology that does not run: a plan is made of what is found, and carried out by one procedure.

``diagnosis`` and ``repair`` bring coordinator state and tables together again, ``rewind`` goes on from an earlier
transaction, both by the ``ways`` from where tables are to checkpoints. ``renaming`` gives other names. ``procedure``
says in which order; ``going_back`` is what all of these check, and so do forks and backfills, which have rooms of their
own.
"""
