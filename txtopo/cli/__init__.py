"""The command line: a module for each command, in folders by what commands do, and the parts that they share.

``run`` has those that run topologies, ``look`` those that write nothing, ``mend`` those that change what runs have
left, and ``cluster`` those of a cluster. ``txtopo.main`` collects them. ``command`` turns errors into messages and exit
statuses and holds the option ``--format``, ``target`` finds the topology that a command names and reads ``--set``,
``display`` shows a run's progress, and ``graphs`` draws a plan.
"""
