"""A topology that joins two spouts, which the simulator is let loose on."""

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from typing import Any

from committers import EventClock, EventTime, IntervalJoin, JoinStream
from spouts import MemoryTransactionalSpout
from tests.simulation.event_time import append
from txtopo import Fields, Topology, TransactionalTopologyBuilder

SECOND = dt.timedelta(seconds=1)
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
ORDER = Fields("order: string", "at: timestamp", "id: long")
PAYMENT = Fields("order: string", "paid_at: timestamp", "payment: long")

ORDERS = [("a", 1), ("b", 3), ("a", 12), (None, 11), ("b", 2), ("a", 25), ("a", None), ("c", 41), ("a", 60), ("b", 24)]
PAYMENTS = [("b", 2), ("a", 12), ("a", 1), ("b", 26), ("a", 70), ("c", 33), ("a", 25), ("b", None), (None, 30)]
"""Keys, and seconds after START: some match several, some none, some come late, one pair at the very same time."""


def topology(how: Any = "full") -> Topology:
    """Return two spouts → clock and join (committers) → joined rows (committer), beside late and untimed ones."""
    builder = TransactionalTopologyBuilder("join", "orders", _spout(ORDERS, ORDER, 1), 2)
    builder.add_spout("payments", _spout(PAYMENTS, PAYMENT, 2), 2)
    sources = {
        "orders": EventTime("at", delay=4 * SECOND),
        "payments": EventTime("paid_at", delay=6 * SECOND, idle_after=30 * SECOND),
    }
    clock = EventClock("clock", sources=sources, close_at_end=True)
    builder.set_committer_bolt("clock", clock).global_grouping("orders").global_grouping("payments")
    builder.set_state("clock", clock.state("unused/clock"))
    join = IntervalJoin(
        "open",
        clock="clock",
        left=JoinStream("orders", key="order", time="at", fields=ORDER),
        right=JoinStream("payments", key="order", time="paid_at", fields=PAYMENT),
        lower=-2 * SECOND,
        upper=10 * SECOND,
        how=how,
    )
    joining = builder.set_committer_bolt("join", join, 2).all_grouping("clock")
    joining.fields_grouping("orders", Fields("order")).fields_grouping("payments", Fields("order"))
    builder.set_state("open", join.state("unused/open"))
    append(builder, "joined", "join", "default", join.joined())
    for side, fields in (("left", ORDER), ("right", PAYMENT)):
        for kind in ("late", "untimed"):
            append(builder, f"{side}-{kind}", "join", f"{side}_{kind}", fields)
    return builder.build()


def _spout(rows: list[Any], fields: Fields, batch: int) -> MemoryTransactionalSpout:
    made = [
        [key, None if second is None else START + second * SECOND, number] for number, (key, second) in enumerate(rows)
    ]
    return MemoryTransactionalSpout({number: made[number::2] for number in range(2)}, fields, batch)


def check_state(tables: Mapping[str, Mapping[Any, Any]]) -> None:
    """No pair is said twice, and no row both with a partner and without, nor as late or untimed beside."""
    joined = Counter({row[:5]: times for row, times in tables["joined"].items()})
    assert max(joined.values(), default=1) == 1, joined
    for side, place, others in (("left", 2, 4), ("right", 4, 2)):
        paired = {row[place] for row in joined if row[place] is not None and row[others] is not None}
        alone = [row[place] for row in joined if row[others] is None]
        apart = [row[2] for kind in ("late", "untimed") for row in tables[f"{side}-{kind}"]]
        assert len({*paired, *alone, *apart}) == len(paired) + len(alone) + len(apart), (side, paired, alone, apart)
