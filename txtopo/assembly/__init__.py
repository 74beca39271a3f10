"""One run of a transactional topology.

``assembly`` makes a run of its parts, ``run_loop`` carries out the core's decisions, durably and in order, ``feed``
asks the spout, ``threads`` runs work in threads, ``statistics`` counts and shows, ``storage`` says where everything is.
"""
