"""What users test their topologies, spouts, states and stores with; txtopo's own tests use the same.

``inline`` runs a topology in this process, without Spark. ``simulation`` runs it through seeded disasters, and
``checkers`` say what must hold in them. ``playbook`` tells a coordinator's story event by event. ``spouts``,
``states`` and ``stores`` are conformance classes: subclass one to hold your own against the contract.
``collector`` and ``context`` stand in for what a bolt is given, and ``zookeeper`` starts real servers.
"""
