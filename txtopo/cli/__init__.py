"""The command line: one small file a command, and what commands share.

``main`` gathers the commands. ``command`` turns errors into words and exit statuses, ``target`` finds the
topology that a command names, ``settings`` reads ``--set``. ``live`` and ``plain`` show a run's progress, and
``graph_text``, ``graph_mermaid`` and ``graph_dot`` draw a plan.
"""
