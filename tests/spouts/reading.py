"""A transactional spout, driven without a run: what it plans, and what it makes of that."""

import json

from txtopo.attempts import TransactionAttempt
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.context import PlainContext

ATTEMPT = TransactionAttempt(1, 1)


def written(path, content):
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def plan(spout, begun=(), tasks=1):
    """Return the metadata of all transactions to the end of the input, as JSON keeps it."""
    coordinator = spout.coordinator({}, PlainContext(tasks=tasks))
    previous = begun[-1] if begun else None
    coordinator.resume(len(begun), previous)
    made = []
    while not coordinator.is_exhausted():
        previous = json.loads(json.dumps(coordinator.initialize_transaction(len(begun) + len(made) + 1, previous)))
        made.append(previous)
    return made


def collected(spout, planned, tasks=1):
    """Return the collector of all tuples of these transactions."""
    collector = RecordingCollector(ATTEMPT, spout.output_fields)
    emitters = [spout.emitter({}, PlainContext(this_task_index=task, tasks=tasks)) for task in range(tasks)]
    for metadata in planned:
        for emitter in emitters:
            emitter.emit_batch(ATTEMPT, metadata, collector)
    return collector


def read(spout, tasks=1):
    """Return all rows that a spout reads."""
    return [values[1:] for values in collected(spout, plan(spout, tasks=tasks), tasks).tuples]
