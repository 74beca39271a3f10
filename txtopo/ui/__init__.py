"""The page that shows what a topology does: what moves, how fast, how late, what waits and why.

It runs in a process of its own, and reads what runs leave in their folders: no driver knows of it.

- ``source`` finds topologies and answers for them, from a folder; ``timeline``, ``series``, ``explanation`` and
  ``tables`` read one kind of thing each.
- ``app`` has the routes, ``security`` who may use them, ``checks`` the audits and replays that a page begins.
- ``views`` makes HTML of the API's answers, and ``static`` has what runs in the browser.
"""
