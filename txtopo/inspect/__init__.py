"""Pure reads of what runs leave in their folders; commands and the page show them, each in its way.

``source`` answers for the topologies of a folder; each other module reads one kind of thing: ``timeline`` and ``rings``
what a run records as it goes, ``story`` what is known of a transaction, ``tables`` the tables of states.
"""
