"""The command line: a module for each command, and the parts that commands share.

``txtopo.main`` collects the commands. ``command`` turns errors into messages and exit statuses, ``target`` finds the
topology that a command names, and ``settings`` reads ``--set``. ``display`` shows a run's progress, ``graph`` draws
a plan, and ``formats`` holds the option ``--format``.
"""
