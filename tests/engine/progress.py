"""What tests of metrics need: a progress, a clock, and what a page says."""

import attrs
from prometheus_client.parser import text_string_to_metric_families

from txtopo.api.components.spout import Lag
from txtopo.assembly.report import Progress

PROGRESS = Progress(
    topology_id="words",
    committed_txid=12,
    processing=3,
    processed=2,
    committing=1,
    ready=4,
    first_uncommitted_status="committing",
    transactions=10,
    dead_letters=1,
    tuples=640,
    failures=5,
    elapsed_secs=9.5,
    last_failure="the password is hunter2",
    total=40,
    attempts=21,
    lags={"numbers": Lag(77, 3, 4096)},
    emitted={"numbers": 640, "bolt": 7},
)


@attrs.define
class Clock:
    """A clock that a test sets."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def values_of(text: bytes | str) -> dict[str, float]:
    """Return the samples of a page by name and labels, without the topology's."""
    content = text if isinstance(text, str) else text.decode()
    found = {}
    for family in text_string_to_metric_families(content):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "topology"}
            shown = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            found[f"{sample.name}{{{shown}}}" if shown else sample.name] = sample.value
    return found
