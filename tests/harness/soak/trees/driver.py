"""The driver of a soak: ``python -m tests.harness.soak.trees.driver HOST PORT FOLDER [MASTER]``."""

import logging
import sys
from pathlib import Path

from tests.harness.soak.trees.topology import WORKERS, soak_topology
from txtopo import Config, run

if __name__ == "__main__":
    host, port, folder = sys.argv[1:4]
    logging.basicConfig(level=logging.ERROR)
    settings = {
        "topology.workers": WORKERS,
        "topology.worker.max.restarts": 1_000_000,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
    }
    if len(sys.argv) > 4:
        settings["topology.spark.master"] = sys.argv[4]
    run(soak_topology((host, int(port)), Path(folder)), Config(settings))
