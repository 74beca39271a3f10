"""What a run exports to the systems of others, if its settings ask for that: lineage and traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from txtopo.assembly.environment import Environment
from txtopo.assembly.parts import Observer, Observers
from txtopo.assembly.report import RunReport
from txtopo.assembly.storage import states_of
from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.text.extras import extra_of, how_to_install
from txtopo.topology.topology import TransactionalTopology

if TYPE_CHECKING:
    from txtopo.engine.lineage.observer import Lineage

LINEAGE, TRACING = "topology.lineage", "topology.tracing"


@attrs.frozen
class Exporting:
    """The environment of a run that is exported, and who wants to know how it ends."""

    environment: Environment
    lineage: Lineage | None = None

    def ended(self, report: RunReport) -> None:
        """Say that the run has ended without an error."""
        if self.lineage is not None:
            self.lineage.ended = report.reason


@contextlib.contextmanager
def exporting(topology: TransactionalTopology, config: Config, environment: Environment) -> Iterator[Exporting]:
    """Export what runs within the context, if so set; raise ConfigError if a package is missing or a setting wrong."""
    observers: list[Observer] = [environment.observer]
    lineage: Lineage | None = None
    with ExitStack() as stack:
        if config[LINEAGE]:
            with _needing(LINEAGE):
                from txtopo.engine.lineage.observer import Lineage  # noqa: PLC0415 - an extra of the installation
            states = states_of(topology.plan, config, environment.make_dead_letters)
            lineage = Lineage(topology, states, config, has_files=environment.has_files)
            observers.append(stack.enter_context(lineage))
        if config[TRACING]:
            with _needing(TRACING):
                from txtopo.engine.tracing import Tracing  # noqa: PLC0415 - as above
            observers.append(stack.enter_context(Tracing(topology.id, config.given)))
        if len(observers) > 1:
            environment = attrs.evolve(environment, observer=Observers(*observers))
        yield Exporting(environment, lineage)


@contextlib.contextmanager
def _needing(setting: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        extra = extra_of(error)
        if extra is None:
            raise
        raise ConfigError(f"{setting} needs {error.name}: {how_to_install(extra)}") from error
