"""Messages between the processes of one run, the driver and its workers, over :mod:`txtopo.channel`.

:mod:`~txtopo.plain.transport.handshake` lets only processes of the run in, :mod:`~txtopo.plain.transport.messages` are
what driver and workers say, and :mod:`~txtopo.plain.transport.frames` are the tuples that workers send one another.
"""
