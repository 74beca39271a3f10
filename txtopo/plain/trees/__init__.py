"""Guaranteed message processing: how a plain topology knows that a message is fully processed.

A spout emits a tuple with a *message id*: a **root**. Bolts emit tuples *anchored* to the ones they work on, so each
root grows a **tuple tree**. The root is *acked* when every tuple of its tree was acked. It is *failed* as soon as one
of them fails, its timeout passes, or a worker that its tree has touched dies.

**One number for a tree.** Each tuple that is sent gets a random 64-bit *edge id*. The root's acker holds one number,
the XOR of all the edge ids it hears of. It hears of each edge twice: when the tuple is sent and when it is acked. So
the number is 0 when every tuple that was sent was acked, and, except for one case in 2⁶⁴, at no other time::

    spout sends c            init  c                       value = c
    bolt acks c, sent d, e   ack   c ^ d ^ e               value = d ^ e
    bolt acks d              ack   d                       value = e
    bolt acks e              ack   e                       value = 0: acked

A bolt's ack names the edges it took away and those it added in *one* message. That is why a tree cannot look finished
while it still grows, and why the order in which messages arrive does not matter. Memory for a root is constant,
however large its tree is (Storm's algorithm: Marz, "Guaranteeing message processing", 2011).

**Acker and spout share a worker.** A root's acker is in the worker of the spout task that emitted it. So a root that
times out at the spout leaves its acker, too, and when a worker dies, no acker is left that tracks roots of dead spouts.

**Dead workers.** Each start of a worker, its *generation*, has a bit of its own. A tuple that is sent to another
worker sets that worker's bit in the tree's *mask*; inits and acks carry masks to the acker. If a worker dies, its bit
is dead forever:

1. Roots whose mask has the bit fail at once, not after the timeout.
2. An init or ack that arrives later and names the bit fails its root, too: a bolt may have sent to the dead worker
   before it learned of the death.
3. A frame names the highest generation that its sender knew of, and waits until its receiver knows of that one, too.
   So a worker that works on a root of a successor knows of the successor, and acks to it.

The modules here, and those of ``tasks`` and the ``worker``, know no clock and no randomness of their own:
time and random bits are arguments. Only ``queues`` writes files, and only ``offload`` has threads.
"""
