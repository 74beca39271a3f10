"""A cluster of daemons that keeps topologies running, whichever process or machine is lost.

Read in this order:

1. ``decisions.lifecycle``: the statuses of a submitted topology, and one table of what changes them. Pure.
2. ``decisions.assignment``: which supervisor runs which topology's driver. Pure.
3. ``decisions.slots``: what a supervisor does with each of its slots, and with which statuses a driver exits. Pure.
4. ``state``: what is in ZooKeeper, and how a leader's writes are fenced.
5. ``election``: who leads.
6. ``code``, ``distribution``: the files of a topology, and how they get to every daemon.
7. ``submission``: what a user hands over.
8. ``nimbus``: the daemon that leads or waits to; ``api`` is what it serves over HTTP,
   and ``client`` what asks it.
9. ``driver``: the process that runs one topology.
10. ``supervisor``: the daemon that starts, watches and ends drivers; ``supervisor_api`` is what it serves over HTTP.
11. ``packaging``: how a topology's own modules become an archive.

To replace a part, subclass :class:`LeaderElector` or :class:`CodeDistributor`; ``txtopo.testing`` has their conformance
tests.
"""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from txtopo.cluster.client import ClusterClient as ClusterClient
    from txtopo.cluster.code.distribution import (
        CodeAccess as CodeAccess,
        CodeDistributor as CodeDistributor,
        LocalCodeDistributor as LocalCodeDistributor,
        SharedFolderCodeDistributor as SharedFolderCodeDistributor,
    )
    from txtopo.cluster.code.store import CodeFile as CodeFile, Manifest as Manifest
    from txtopo.cluster.nimbus.election import (
        LeaderElector as LeaderElector,
        ZooKeeperLeaderElector as ZooKeeperLeaderElector,
    )
    from txtopo.cluster.state import ClusterState as ClusterState, Term as Term

__getattr__, __dir__, __all__ = lazy_names(__name__)
