"""Groups are found in a journal as a reader of the whole of it finds them, at a cost that does not depend on its length."""

import random
from typing import ClassVar

import attrs
import pytest

from state.delta.read.points import GroupWrites
from tests.journals import entered, long_journal
from txtopo.errors import DivergenceError
from txtopo.files.folder import LocalFolder
from txtopo.journal.entries import JournalHeader, JournalTable
from txtopo.journal.journal import counting_entries, read_journal
from txtopo.journal.search import JournalSearch, SearchSizes, lines_backwards
from txtopo.journal.turns import Rename, Turn
from txtopo.journal.writer import JournalWriter
from txtopo.transactional.recovery.checkpoints import checkpoints_in


class CountingFolder(LocalFolder):
    """A folder that counts the bytes that are read from it."""

    read: ClassVar[list[int]] = []

    def get_range(self, path: str, start: int, length: int) -> bytes:
        content = super().get_range(path, start, length)
        self.read.append(len(content))
        return content


def written(folder, seed, part_bytes):
    """Write the journal of some coordinators: some drop a group of the one before, some follow a rewind or a rename."""
    draw = random.Random(seed)
    committed, turns, renames, state = draw.randrange(3), (), (), "t"
    for epoch in range(1, draw.randrange(2, 7)):
        if epoch > 1 and draw.random() < 0.3:
            committed = draw.randrange(committed + 1)
            kept = (turn for turn in turns if turn.txid < committed)
            turns = (*kept, Turn(epoch, committed, ()))
            if draw.random() < 0.5:
                committed += draw.randrange(20)
                continue  # the journal was restored from a backup that lacks it; its successors name the turn
        if epoch > 1 and draw.random() < 0.2:
            renames = (*renames, Rename(committed, "top", "top", {f"t{epoch}": state}))
            state = f"t{epoch}"
        header = JournalHeader("top", "life", epoch, {"spout": "repeatable"}, committed, None, {}, {state: None})
        writer = JournalWriter(
            folder, attrs.evolve(header, turns=turns, renames=renames), 1 << 40, part_bytes_max=part_bytes
        )
        last = committed
        for _ in range(draw.randrange(8)):
            committed, last = last, last + draw.randrange(1, 12)
            writer.enter(entered(committed + 1, last, epoch, state))
        committed = draw.choice([committed, last])  # the next coordinator drops the last group, or finishes it


@pytest.mark.slow
@pytest.mark.parametrize("part_bytes", [1_000, 1 << 20])
@pytest.mark.parametrize("seed", range(12))
def test_all_are_found_as_by_a_reader_of_the_whole(tmp_path, seed, part_bytes):
    """Over several coordinators and files: each transaction, those around the ends, and all groups in their order."""
    folder = LocalFolder(tmp_path)
    written(folder, seed, part_bytes)
    parts, search = read_journal(folder), JournalSearch(folder, sizes=SearchSizes(bytes=100))
    entries = counting_entries(parts, lambda _: True)
    assert [group.entry for group in search.backwards()] == entries[::-1]
    every = [entry for part in parts for entry in part.entries]
    ends = {end + off for entry in every for end in (entry.first, entry.last) for off in (0, 1)}
    for txid in random.Random(seed).sample(sorted({0, *ends}), min(12, len({0, *ends}))):
        expected = next((entry for entry in reversed(entries) if entry.first <= txid <= entry.last), None)
        found = search.find(txid)
        assert (found and found.entry) == expected, txid
        if found is not None:
            assert found.header.topology == parts[-1].header.topology
            assert found.transaction(txid).txid == txid
        assert [group.entry for group in search.all_with(txid)] == [
            entry for entry in reversed(every) if entry.first <= txid <= entry.last
        ]
        below = [entry for entry in reversed(entries) if entry.first <= txid]
        assert [group.entry for group in search.backwards(txid)] == below
        reached = [entry for entry in below if entry.last >= txid - 20]
        assert [group.entry for group in search.backwards(txid, txid - 20)] == reached


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(12))
def test_what_stood_at_some_transactions_is_told_by_what_is_around_them(tmp_path, seed):
    """Their checkpoints, with the last write of each state, however rare that is, are those of the whole journal."""
    folder, draw = LocalFolder(tmp_path), random.Random(seed)
    committed, states, tables = 0, dict.fromkeys("abc"), {name: JournalTable(name, name) for name in "abc"}
    stood = {0: states}
    for epoch in range(1, draw.randrange(3, 6)):
        header = JournalHeader("top", "life", epoch, {"spout": "repeatable"}, committed, None, tables, states)
        writer = JournalWriter(folder, header, 1 << 40, part_bytes_max=4_000)
        for _ in range(draw.randrange(40)):
            names = draw.choice([*"aaaaabc", "", "abc"])
            entry = entered(committed + 1, committed + draw.randrange(1, 4), epoch, "a")
            writer.enter(attrs.evolve(entry, states=dict.fromkeys(names, (1, 0))))
            committed, states = entry.last, {**states, **dict.fromkeys(names, entry.last)}
            stood[committed] = states
        committed = draw.choice(sorted(stood))  # the next coordinator goes back, or drops the last group
        states, stood = stood[committed], {txid: each for txid, each in stood.items() if txid <= committed}

    def checkpoints(parts):
        return {each.txid: each for each in checkpoints_in(parts, "top", "life", (), {}, decided=1_000)}

    parts = read_journal(folder)
    every = checkpoints(parts)
    for _ in range(4):
        txids = draw.sample(range(max(every) + 1), min(4, len(every)))
        around = JournalSearch(folder, sizes=SearchSizes(bytes=200, near_lines=2, block_bytes=200)).around(txids)
        found = checkpoints(around)
        assert found == {txid: every[txid] for txid in found}
        assert {max(every), *every.keys() & {*txids}} <= found.keys()
        entries = counting_entries(around, lambda _: True)
        firsts = {entry.first: entry.last for entry in counting_entries(parts, lambda _: True)}
        for txid in txids:  # of one within a group, both ends are known
            last = next((last for first, last in firsts.items() if first <= txid <= last), None)
            assert last is None or any(entry.last == last for entry in entries)
            assert last in {None, txid} or not txid or max(each for each in every if each < txid) in found
        for name in "abc":
            whole, some = GroupWrites.of(parts, name), GroupWrites.of(around, name)
            for txid in every.keys() & {*txids}:
                for reached in {0, every[txid].states[name].txid or 0, txid // 2}:
                    assert whole.has_none(reached, txid) == some.has_none(reached, txid)


@pytest.mark.slow
def test_a_look_costs_the_same_in_a_long_journal(tmp_path):
    """What is read grows with the logarithm of the journal at most; a neighbour costs no more."""
    read = {}
    for transactions in (1_000, 30_000):
        folder = CountingFolder(tmp_path / str(transactions))
        long_journal(folder, transactions)
        search = JournalSearch(folder)
        search.headers()
        costs = []
        for txid in (1, transactions // 3, transactions - 1, transactions):
            folder.read.clear()
            assert search.find(txid).transaction(txid).metadata == txid
            costs.append(sum(folder.read))
        folder.read.clear()
        assert len(search.around([1, transactions // 3])) == 3
        read[transactions] = max(*costs, sum(folder.read))
    assert read[30_000] < 3 * read[1_000], read
    assert read[30_000] < 1 << 20, read


def test_no_journal_and_one_without_entries(tmp_path):
    """Nothing is found."""
    search = JournalSearch(LocalFolder(tmp_path))
    assert (search.headers(), search.find(1), [*search.backwards()]) == ([], None, [])
    JournalWriter(
        LocalFolder(tmp_path), JournalHeader("top", "life", 1, {"spout": "repeatable"}, 3, None, {}, {}), 1 << 20
    )
    assert ([header.committed for header in search.headers()], search.find(3), search.find(4)) == ([3], None, None)


@pytest.mark.parametrize("damage", [b'{"transactions": []}\n', b"{}\n", b"\xff\n", b"[1]\n"])
def test_damage_is_named(tmp_path, damage):
    """A line that is not that of a group is an error that names the file; one that is cut off is not there yet."""
    long_journal(LocalFolder(tmp_path), 20)
    (file,) = tmp_path.glob("*.jsonl")
    with file.open("ab") as appended:
        appended.write(damage[:-1])
    search = JournalSearch(LocalFolder(tmp_path))
    assert search.find(20).entry.last == 20
    with file.open("ab") as appended:
        appended.write(b"\n")
    with pytest.raises(DivergenceError, match=file.name):
        search.find(21)


@pytest.mark.parametrize("block_bytes", [1, 7, 64 * 1024])
def test_lines_are_read_backwards(tmp_path, block_bytes):
    """Whatever their lengths and the blocks that are read, each whole line comes once, the last one first."""
    path = tmp_path / "lines"
    for lines in ([], [b"one"], [b"one", b"", b"three" * 5], [b"x" * n for n in range(20)]):
        for cut_off in (b"", b"not whole"):
            path.write_bytes(b"header\n" + b"".join(line + b"\n" for line in lines) + cut_off)
            folder = LocalFolder(tmp_path)
            (file,) = folder.list()
            assert list(lines_backwards(folder, file, len(b"header\n"), file.size, block_bytes)) == lines[::-1]
