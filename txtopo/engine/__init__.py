"""The run loop: carries out the core's decisions, durably and in order.

``runner`` assembles a run, ``run_loop`` is the loop, ``source`` asks the spout, ``threads`` runs work in threads.
"""
