"""Real bugs, to be re-introduced one at a time: where each goes, and who is to find it.

A bug is a text in a source file and what stands there instead. The text must be there exactly once, so a bug
that the code has outgrown shows at once.
"""

from __future__ import annotations

import attrs

WORDS = "words"
OPAQUE_STATE = "words, opaque state"
OPAQUE_SOURCE = "words, opaque source"
SUBJECTS = (WORDS, OPAQUE_STATE, OPAQUE_SOURCE)


@attrs.frozen
class Bug:
    """One bug.

    Args:
        name: what it is.
        path: the file it goes into.
        old: what stands there.
        new: what stands there instead.
        subjects: what the simulator runs to find it; empty where the simulator's tables stand in for that code.
        tests: the tests that find it otherwise.
    """

    name: str
    path: str
    old: str
    new: str
    subjects: tuple[str, ...] = SUBJECTS
    tests: tuple[str, ...] = ()


BUGS = (
    Bug(
        "a late fail drops the live attempt",
        "txtopo/core/transactions.py",
        "return self.attempt == attempt",
        "return self.attempt is not None and self.attempt.txid == attempt.txid",
    ),
    Bug(
        "attempts repeat after a restart",
        "txtopo/core/attempts.py",
        "return ((epoch - FIRST_EPOCH) << ATTEMPTS_PER_EPOCH_BITS) + tries_before + 1",
        "return tries_before + 1",
    ),
    Bug(
        "a store write without its fence",
        "state/memory_store.py",
        "if self._released or stored != self._epoch:",
        "if False:",
    ),
    Bug(
        "a Delta write without its fence",
        "state/delta_fence.py",
        "if marker > self.epoch:",
        "if False:",
        subjects=(),
        tests=("tests/state/test_delta_fence.py",),
    ),
    Bug(
        "a Delta write that may move behind a newer marker",
        "state/delta_fence.py",
        "transactions, max_commit_retries=0",
        "transactions, max_commit_retries=15",
        subjects=(),
        tests=("tests/state/test_delta_fence.py",),
    ),
    Bug(
        "a table's application transaction left out",
        "state/delta_fence.py",
        "        if txid is not None:\n            transactions.append(",
        "        if txid is None:\n            transactions.append(",
        subjects=(),
        tests=("tests/state/test_delta.py",),
    ),
    Bug(
        "a Delta write that does not ask whether it is there",
        "state/delta_opened_table.py",
        "            if self._is_visible(txid):\n                return\n            self._refuse_foreign_change(txid)",
        "            self._is_visible(txid)\n            self._refuse_foreign_change(txid)",
        subjects=(),
        tests=("tests/state/test_delta.py",),
    ),
    Bug(
        "an earlier transaction of a group that keeps its rows in a partition",
        "state/delta_plain_group.py",
        "            later[txid] = replaced\n",
        "            pass\n",
        subjects=(),
        tests=("tests/state/test_delta_rows_replacing.py",),
    ),
    Bug(
        "a replaced partition whose files stay",
        "state/delta_plain_opened.py",
        "in replaced]",
        "not in replaced]",
        subjects=(),
        tests=("tests/state/test_delta_rows_replacing.py",),
    ),
    Bug(
        "rows of a transaction that is in the table put once more",
        "state/delta_plain_opened.py",
        "parts = [part for part in parts if last is None or part.txid > last]",
        "parts = list(parts)",
        subjects=(),
        tests=("tests/state/test_delta_rows_table.py",),
    ),
    Bug(
        "a commit out of order",
        "txtopo/core/choosing.py",
        "        if transaction.status is not Status.PROCESSED or len(group) == limits.group_transactions_max:\n"
        "            break\n",
        "        if transaction.status is not Status.PROCESSED:\n            continue\n"
        "        if len(group) == limits.group_transactions_max:\n            break\n",
    ),
    Bug(
        "metadata saved after the emit",
        "txtopo/core/coordinator.py",
        "        self._advance(actions)\n        return actions",
        "        self._advance(actions)\n"
        "        return sorted(actions, key=lambda action: isinstance(action, SaveMetadata))",
    ),
    Bug(
        "metadata not saved at all",
        "txtopo/runtime/shell.py",
        "                    self._parts.ledger.save_metadata(action.begun)",
        "                    pass",
    ),
    Bug(
        "the per-key txid ignored",
        "state/values.py",
        "        return self.txid >= txid\n",
        "        return False\n",
        subjects=(),
        tests=("tests/state/test_values.py",),
    ),
    Bug(
        "an opaque previous overwritten in a group",
        "state/values.py",
        "        return OpaqueValue(txid, value, self.value_before(txid))",
        "        return OpaqueValue(txid, value, self.previous)",
    ),
    Bug(
        "a group split differently after a crash",
        "txtopo/runtime/recovery.py",
        "    for write in group.staged:\n",
        "    for write in group.staged[:1]:\n",
    ),
    Bug(
        "a half-written group dropped by recovery",
        "txtopo/runtime/recovery.py",
        "    if not landed:\n",
        "    if len(landed) < len(group.states):\n",
    ),
    Bug(
        "a group not noted before its writes",
        "txtopo/runtime/groups.py",
        "                self._ledger.begin_group(",
        "                (lambda mark: None)(",
    ),
    Bug(
        "cleanup one too far",
        "txtopo/runtime/ledger.py",
        "for txid in range(first, mark.txid + 1)]",
        "for txid in range(first, mark.txid + 2)]",
    ),
    Bug(
        "results dropped one too far",
        "txtopo/runtime/shell.py",
        "attempt.txid <= action.txid)",
        "attempt.txid <= action.txid + 1)",
    ),
    Bug(
        "a pack whose failure fails its neighbours",
        "txtopo/phases/processing.py",
        "            self._failures[attempt] = error\n",
        "            self._failures.update({each: error for each, _ in self._job.attempts})\n",
    ),
    Bug(
        "coordinator state written before the tables",
        "txtopo/runtime/groups.py",
        "            self._write_states(last, writes, bool(staged))\n",
        "            self._ledger.commit(CommittedMark(last, metadata, self._committed.states), first)\n"
        "            self._write_states(last, writes, bool(staged))\n",
    ),
    Bug(
        "a failed commit phase leaves its writes",
        "txtopo/phases/state_view.py",
        "            self._own.clear()\n            self._own_rows.clear()\n            self._own_placed.clear()\n",
        "            self.finish()\n",
    ),
    Bug(
        "a single key does not see an earlier transaction of the group",
        "txtopo/phases/state_view.py",
        "self._at_hand = self._own.bare, self._group.written.bare",
        "self._at_hand = self._own.bare, {}",
    ),
    Bug(
        "a value put again by a later transaction keeps the first one's txid",
        "txtopo/contracts/layer.py",
        "in reversed(self._puts):",
        "in self._puts:",
        subjects=(),
        tests=("tests/contracts/test_layer.py",),
    ),
    Bug(
        "a tuple that a bolt keeps becomes another one",
        "txtopo/phases/tasks.py",
        "                one = Tuple((), source)\n            one.values = values\n            execute(one)\n",
        "                pass\n            one.values = values\n            execute(one)\n",
        subjects=(),
        tests=("tests/phases/test_tasks.py",),
    ),
    Bug(
        "a list that is emitted again becomes another tuple",
        "txtopo/phases/collector.py",
        "            append(tuple(values))  #",
        "            append(values)  #",
        subjects=(),
        tests=("tests/phases/test_collector.py",),
    ),
    Bug(
        "what is emitted after the batch vanishes",
        "txtopo/phases/collector.py",
        "            attempt = object()\n",
        "            attempt = attempt\n",
        subjects=(),
        tests=("tests/phases/test_collector.py",),
    ),
    Bug(
        "a bolt's own thread hands on what another is emitting",
        "txtopo/phases/collector.py",
        "        if count and threading.get_ident() == self._thread:\n",
        "        if count:\n",
        subjects=(),
        tests=("tests/phases/test_collector.py",),
    ),
    Bug(
        "two threads that update a state at once",
        "txtopo/phases/places.py",
        "threading.RLock() if view is None else view.lock",
        "threading.RLock()",
        subjects=(),
        tests=("tests/phases/test_state_threads.py",),
    ),
    Bug(
        "a key with the hash of a row is taken for it",
        "state/delta_index.py",
        "        places[wanted[is_same]] = at[is_same]\n",
        "        places[wanted] = at\n",
        subjects=(),
        tests=("tests/state/test_delta_index.py",),
    ),
    Bug(
        "rows that Spark has combined too much",
        "txtopo/spark/combining.py",
        "        return None\n    return batch.select",
        "        pass\n    return batch.select",
        subjects=(),
        tests=("tests/spark/test_frame_tasks.py",),
    ),
    Bug(
        "a column made of what only looks like numbers",
        "txtopo/phases/column_bytes.py",
        "return self._numbers(count) if self.form is Form.MARSHALLED else None",
        "return self._numbers(count)",
        subjects=(),
        tests=("tests/phases/test_column_bytes.py",),
    ),
    Bug(
        "tuples that come as columns of whole numbers, whatever their values are",
        "txtopo/phases/combinable.py",
        "set(map(type, values)) != {int}",
        "False",
        subjects=(),
        tests=("tests/phases/test_tasks.py",),
    ),
    Bug(
        "rows of an earlier portion forgotten",
        "state/delta_folding.py",
        "            made = self._reduced(pa.concat_tables([made, *map(",
        "            made = self._reduced(pa.concat_tables([*map(",
        subjects=(),
        tests=("tests/state/test_delta_folding.py",),
    ),
    Bug(
        "a later transaction of a group does not see an earlier one",
        "txtopo/phases/state_view.py",
        "                if key in written:\n",
        "                if False:\n",
    ),
    Bug(
        "an opaque failure that rolls nothing back",
        "txtopo/core/coordinator.py",
        "            self._roll_back(transaction.txid + 1 if is_kept else transaction.txid)",
        "            pass",
    ),
    Bug(
        "a lost pack forgotten",
        "txtopo/core/coordinator.py",
        "        self._fail_pack(pack_id, held, error)\n\n    def _fail_pack",
        "        del held, error\n\n    def _fail_pack",
    ),
    Bug(
        "a window one too wide",
        "txtopo/core/choosing.py",
        "    end = committed + limits.window\n",
        "    end = committed + limits.window + 1\n",
    ),
    Bug(
        "a lead taken without a new epoch",
        "state/memory_store.py",
        "self.place.epochs.get(topology_id, 0) + 1",
        "max(1, self.place.epochs.get(topology_id, 0))",
    ),
)
