"""The command ``txtopo``: the one room that knows both the command line and the page.

Its commands are imported one by one, so that none waits for the imports of another.
"""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from txtopo.cli.cluster.asking import (
        activate as activate,
        deactivate as deactivate,
        kill as kill,
        leader as leader,
        list_command as list_command,
        logs as logs,
        rebalance as rebalance,
    )
    from txtopo.cli.cluster.daemons import nimbus as nimbus, supervisor as supervisor
    from txtopo.cli.cluster.dev import cluster as cluster
    from txtopo.cli.cluster.driver import driver as driver
    from txtopo.cli.cluster.submit import submit as submit
    from txtopo.cli.look.audit import audit_command as audit_command
    from txtopo.cli.look.blame import blame_command as blame_command
    from txtopo.cli.look.diff import diff as diff
    from txtopo.cli.look.explain import explain_command as explain_command
    from txtopo.cli.look.replay import replay_command as replay_command
    from txtopo.cli.look.settings_command import settings_command as settings_command
    from txtopo.cli.look.show import show as show
    from txtopo.cli.look.state import state as state
    from txtopo.cli.mend.backfill import backfill_command as backfill_command
    from txtopo.cli.mend.evolve import evolve as evolve
    from txtopo.cli.mend.fork import fork as fork
    from txtopo.cli.mend.going_on import forgo as forgo, replan as replan, skip as skip
    from txtopo.cli.mend.rename import rename as rename
    from txtopo.cli.mend.repair import repair as repair
    from txtopo.cli.mend.rewind import rewind as rewind
    from txtopo.cli.run.bucket import bucket as bucket
    from txtopo.cli.run.kafka import kafka as kafka
    from txtopo.cli.run.run import run as run
    from txtopo.cli.run.simulate import simulate as simulate
    from txtopo.main.page import ui as ui

__getattr__, __dir__, __all__ = lazy_names(__name__)
