"""The page that shows what a topology does: what moves, how fast, how late, what waits and why.

It runs in a separate process, and shows what :mod:`txtopo.inspect` reads: no driver knows of it.

- ``cluster`` has the answers of a cluster's supervisors, for the page of a cluster.
- ``app`` has the routes, ``security`` who may use them, ``checks`` the audits and replays that a page begins.
- ``views`` makes HTML of the answers, from what ``markup`` offers, and ``static`` has what runs in the browser.
"""
