"""Commands are called here as in the tests of commands; topics are in memory and on a broker."""

from tests.cli.conftest import command_line
from tests.spouts.kafka.places import broker_place, place

__all__ = ["broker_place", "command_line", "place"]
