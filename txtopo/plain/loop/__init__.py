"""A worker.

:mod:`~txtopo.plain.loop.worker` is the pure loop over its tasks, :mod:`~txtopo.plain.loop.process` the process.
"""
