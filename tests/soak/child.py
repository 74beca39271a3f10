"""A process of the topology: ``python -m tests.soak.child SETUP``, the setup being JSON.

It says on standard output when a pack's job is lost: that is how a dead Python worker shows.
"""

from __future__ import annotations

import json
import logging
import sys

from tests.soak.topology import Setup, config_of, topology_of
from txtopo import run
from txtopo.core.events import PackFailed
from txtopo.testing.inline import run_inline

LOST = "lost a pack:"


class LostPacks(logging.Handler):
    """Prints the packs that were lost."""

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], PackFailed):
            print(LOST, record.args[0], flush=True)


def main() -> None:
    """Run the topology to its end."""
    setup = Setup(**json.loads(sys.argv[1]))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logger = logging.getLogger("txtopo")
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.WARNING)
    logger.addHandler(LostPacks())
    logger.setLevel(logging.DEBUG)
    start = run_inline if setup.inline else run
    print(start(topology_of(setup), config_of(setup)))


if __name__ == "__main__":
    main()
