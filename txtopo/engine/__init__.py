"""The run loop round the core: it carries out what the core decides, durably and in order.

``runner`` puts a run together, ``run_loop`` is the loop, ``source`` asks the spout, ``threads`` does the work.
"""
