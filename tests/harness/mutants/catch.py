"""Runs the simulator until it finds something: ``python -m tests.harness.mutants.catch SEEDS SUBJECT …``.

It prints a line of JSON for each subject: the failing seed, and the violation, null if there is none.
"""

import json
import sys

from tests.harness.mutants.bugs import TANGLE
from tests.plain.test_races import tangle
from tests.simulation.test_schedules import case
from txtopo.testing.simulation.plain.world import PlainSubject
from txtopo.testing.simulation.schedule import Simulated
from txtopo.testing.simulation.schedules import make_subject, run_schedules


def main() -> None:
    seeds, *names = sys.argv[1:]
    for name in names:
        violation, needed = None, 0
        try:
            result = run_schedules(subject_of(name), range(1, int(seeds) + 1))
            if result.failures:
                violation, needed = result.failures[0].violation.splitlines()[0], result.failures[0].seed
        except Exception as error:  # noqa: BLE001 - it does not even run once
            violation = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps({"subject": name, "seeds": needed, "violation": violation}), flush=True)
        if violation is not None:
            return


def subject_of(name: str) -> Simulated:
    """Return the subject of the simulator with a name."""
    if name == TANGLE:
        return PlainSubject(tangle(), roots=20)
    found = case(name)
    return make_subject(found.topology, invariant=found.invariant, is_real_time=found.is_real_time)


if __name__ == "__main__":
    main()
