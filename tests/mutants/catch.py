"""Runs the simulator until it finds something: ``python -m tests.mutants.catch SEEDS SUBJECT …``.

Prints one line of JSON for each subject: the seeds it took, and the violation, or null.
"""

from __future__ import annotations

import json
import sys

from tests.simulation.test_schedules import case
from txtopo.testing.simulation.schedules import make_subject, run_schedules


def main() -> None:
    seeds, *names = sys.argv[1:]
    for name in names:
        violation, needed = None, 0
        try:
            subject = make_subject(case(name).topology, invariant=case(name).invariant)
            result = run_schedules(subject, range(1, int(seeds) + 1))
            if result.failures:
                violation, needed = result.failures[0].violation.splitlines()[0], result.failures[0].seed
        except Exception as error:  # noqa: BLE001 - it does not even run once
            violation = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps({"subject": name, "seeds": needed, "violation": violation}), flush=True)
        if violation is not None:
            return


if __name__ == "__main__":
    main()
