"""Runs the words topology in a process of its own: ``python -m tests.acceptance.run_words OUTPUT [name=value …]``."""

import sys

from tests.acceptance.topologies import make_data, words_topology
from txtopo import Config, run

if __name__ == "__main__":
    output, *settings = sys.argv[1:]
    config = Config(max_spout_pending=24).with_settings(dict(setting.split("=", 1) for setting in settings))
    print(run(words_topology(output, make_data(3, 900)), config))
