"""KafkaBolt's tests take topics as those of the spouts do."""

from __future__ import annotations

from tests.spouts.kafka.places import broker_place, place

__all__ = ["broker_place", "place"]
