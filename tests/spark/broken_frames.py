"""A topology whose DataFrame bolt fails in Spark's tasks: in a process of its own, for what the JVM prints."""

from state import MemoryState
from tests.spark.delta_join import Sales
from txtopo import BatchBolt, DataFrameBolt, Fields, ICommitter, TransactionalTopologyBuilder


class Divide(DataFrameBolt):
    """Divides by nothing, in Python within a task."""

    output_fields = Fields("attempt", "item: long")

    def transform(self, frame):
        def divide(batches):
            for batch in batches:
                raise ZeroDivisionError("division by zero")
                yield batch

        return frame.mapInArrow(divide, frame.schema)


class Take(BatchBolt, ICommitter):
    def execute(self, tuple):
        raise AssertionError("nothing comes here")

    def finish_batch(self):
        raise AssertionError("nothing comes here")


def topology():
    builder = TransactionalTopologyBuilder("broken", "spout", Sales(), 1)
    builder.set_bolt("divide", Divide()).shuffle_grouping("spout")
    builder.set_bolt("take", Take(), 1).global_grouping("divide")
    builder.set_state("none", MemoryState(Fields("k: long"), Fields("v: long")))
    return builder.build()
