"""A cluster of daemons that keeps topologies running, whichever process or machine is lost.

Read in this order:

1. ``decisions``, pure: the statuses of a topology and what changes them (``lifecycle``), which supervisor runs which
   driver (``assignment``), what a supervisor does with each of its slots (``slots``).
2. ``state``: what is in ZooKeeper, and how a leader's writes are fenced.
3. ``code``: what a user submits, and how it gets to every other daemon. ``code_store`` is where a daemon keeps it.
4. ``nimbus``: who leads (``election``, ``lead``), what the leader does (``submissions``, ``monitor``), what every
   nimbus does (``code_sync``), how it is put together (``daemon``), and its HTTP API (``api``).
5. ``driver``: the process that runs one topology, its heartbeats, and the folder by which a supervisor finds it again.
6. ``supervisor``: the daemon that starts, watches and ends drivers.
7. ``client``: sends requests to a nimbus. ``packaging`` makes the archive of a submission.

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
    from txtopo.cluster.code_store import CodeFile as CodeFile, Manifest as Manifest
    from txtopo.cluster.nimbus.election import (
        LeaderElector as LeaderElector,
        ZooKeeperLeaderElector as ZooKeeperLeaderElector,
    )
    from txtopo.cluster.state import ClusterState as ClusterState, Term as Term

__getattr__, __dir__, __all__ = lazy_names(__name__)
