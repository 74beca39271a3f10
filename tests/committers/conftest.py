"""Commands are called here as in their own tests, and topics are those of the spouts' tests."""

from tests.cli.conftest import command_line
from tests.spouts.kafka.places import broker_place, place

__all__ = ["broker_place", "command_line", "place"]
