"""Messages between the processes of one run, the driver and its workers, over :mod:`txtopo.channel`.

:mod:`~txtopo.plain.transport.handshake` admits only processes of the run. Driver and workers exchange
:mod:`~txtopo.plain.transport.messages`; workers send one another :mod:`~txtopo.plain.transport.frames` of tuples.
"""
