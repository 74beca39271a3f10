"""Where Python is told to write no bytecode, each process that a test starts would compile all sources again.

It is kept in a folder of its own then, so the tree stays as it is; this is run before the first test's imports.
"""

import os
import sys
from pathlib import Path

BYTECODE = Path(__file__).resolve().parents[1] / "build" / "bytecode"

if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a spawned process has the flag alone
