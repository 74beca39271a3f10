"""A short way to say a topology: streams, what is done with their rows, and the tables that they end in.

``flow`` has the sources and the way to a topology; ``stream`` the words for streams, groups and windows, ``rows`` those
for rows; ``joins`` and ``clocks`` the steps of these; ``graph`` what steps are, and how they become components;
``words`` the mistakes. What row-wise steps do with rows is in :mod:`txtopo.row_wise`.
"""

from typing import TYPE_CHECKING

from txtopo.lazy import lazy_names

if TYPE_CHECKING:
    from committers.aggregates.approximate import (
        ApproxCountDistinct as ApproxCountDistinct,
        ApproxQuantile as ApproxQuantile,
    )
    from committers.aggregates.numbers import Count as Count, Mean as Mean, Sum as Sum
    from committers.aggregates.ordered import (
        Collect as Collect,
        CountDistinct as CountDistinct,
        First as First,
        Last as Last,
        Max as Max,
        Min as Min,
    )
    from committers.aggregates.rankings import ArgMax as ArgMax, ArgMin as ArgMin, LastN as LastN, TopN as TopN
    from committers.event_time.windows import (
        Days as Days,
        Hours as Hours,
        Sessions as Sessions,
        Sliding as Sliding,
        Tumbling as Tumbling,
    )
    from txtopo.streams.flow import Flow as Flow
    from txtopo.streams.stream import Aggregated as Aggregated, Grouped as Grouped, Stream as Stream, Table as Table

__getattr__, __dir__, __all__ = lazy_names(__name__)
