"""A process of the topology: ``python -m tests.harness.soak.transactions.child SETUP``, with the setup as JSON.

It prints when a Python worker has died.
"""

import json
import logging
import sys

from tests.harness.soak.transactions.large import merge_often
from tests.harness.soak.transactions.subjects import topology_of
from tests.harness.soak.transactions.topology import Setup, config_of
from txtopo import run
from txtopo.testing.inline import run_inline
from txtopo.transactional.core.events import JobLost

DIED = "a Python worker died"
_SPARK_SAYS = "Python worker exited unexpectedly"
_SUPERVISOR_SAYS = "it is started again"


class DeadWorkers(logging.Handler):
    """Prints when a worker of real-time mode has died, or a job is lost with a Python worker.

    Other jobs are lost because they were cancelled.
    """

    def emit(self, record: logging.LogRecord) -> None:
        event = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if isinstance(event, JobLost) and _SPARK_SAYS in event.error:
            print(f"{DIED}, and pack {event.job_id} with it", flush=True)
        if record.name == "txtopo.workers" and _SUPERVISOR_SAYS in record.getMessage():
            print(DIED, flush=True)


def main() -> None:
    setup = Setup(**json.loads(sys.argv[1]))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logger = logging.getLogger("txtopo")
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.WARNING)
    logger.addHandler(DeadWorkers())
    logger.setLevel(logging.DEBUG)
    if setup.keys:
        merge_often()
    start = run_inline if setup.inline else run
    print(start(topology_of(setup), config_of(setup)))


if __name__ == "__main__":
    main()
