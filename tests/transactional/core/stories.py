"""How many stories of the coordinator begin."""

from txtopo.testing.scenario import Scenario, ask, begun, recovered, run, save


def begin(story: Scenario, count: int) -> None:
    """Begin as many transactions as may be pending, and process all of them in one job."""
    txids = range(1, count + 1)
    story >> recovered() << ask(1, story.coordinator.limits.pending_max)
    story >> begun(*txids) << save(*txids) << run(1, *(f"{txid}:1" for txid in txids))


def begin_opaque(story: Scenario, count: int) -> None:
    """Begin transactions of an opaque spout: what they hold is not known before they are processed."""
    txids = range(1, count + 1)
    story >> recovered() << ask(1, count)
    story >> begun(*txids, metadata="?")
    story << run(1, *(f"{txid}:1" for txid in txids), metadata="?")
