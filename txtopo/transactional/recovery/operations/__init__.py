"""What users do to a topology that does not run: a plan is made of what is found, and carried out by one procedure.

``diagnosis`` and ``repair`` bring coordinator state and tables together again, ``rewind`` goes on from an earlier
transaction, ``renaming`` gives other names. ``going_back`` is what all of these check, and ``procedure`` in which
order; so do forks and backfills, which have rooms of their own.
"""
