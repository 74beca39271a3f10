"""The rules of the store in a bucket as a model, whose states are all visited.

Two processes take the lead from each other at any moment, decide transactions, cut the log, and stop anywhere. What a process sends may arrive whenever it likes, also again, long after the process has had
its answer, or has been given up for dead: a request stays under way for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

ENTRIES_MAX = 3
"""Of each rule that is left out, three entries show why it is needed."""


@attrs.frozen
class Entry:
    """A write: that a process takes the lead, or the note of a transaction."""

    process: int
    epoch: int
    txid: int = 0
    """0: the lead."""


@attrs.frozen
class Process:
    """What a process knows."""

    step: str = "idle"
    number: int = 0
    """The last entry that it has read or written."""
    epoch: int = 0
    decided: int = 0
    base: int = 0
    """The base that it has read."""
    sent: Entry | None = None


@attrs.frozen
class Rules:
    """What the design says; each can be left out."""

    fences_stay: bool = True
    contender_looks_at_base: bool = True
    base_is_compared: bool = True
    entries_are_compared: bool = True


@attrs.frozen
class World:
    """The objects, all requests under way, and the processes; ``history`` is what every reader is to see."""

    log: frozenset[tuple[int, Entry]] = frozenset()
    base: int = 0
    under_way: frozenset[tuple[int, Entry]] = frozenset()
    bases_under_way: frozenset[tuple[int, int]] = frozenset()
    processes: tuple[Process, ...] = (Process(), Process())
    history: tuple[Entry, ...] = ()

    def entry(self, number: int) -> Entry | None:
        return dict(self.log).get(number)

    def with_process(self, index: int, **changes: object) -> World:
        processes = list(self.processes)
        processes[index] = attrs.evolve(processes[index], **changes)
        return attrs.evolve(self, processes=tuple(processes))

    def putting(self, number: int, entry: Entry) -> World:
        """The store takes an entry if its name is free."""
        if self.entry(number) is not None:
            return self
        follows = number == len(self.history) + 1
        return attrs.evolve(
            self, log=self.log | {(number, entry)}, history=(*self.history, entry) if follows else self.history
        )

    def read(self, index: int) -> World:
        """A process reads the base and the log to its end."""
        number, entries = self.base, list(self.history[: self.base])
        while (found := self.entry(number + 1)) is not None:
            entries.append(found)
            number += 1
        decided = max((entry.txid for entry in entries), default=0)
        epoch = max((entry.epoch for entry in entries), default=0)
        return self.with_process(index, step="read", number=number, epoch=epoch, decided=decided, base=self.base)


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Yield the worlds that come after this one by one step of a process or of the network."""
    for number, entry in world.under_way:
        yield world.putting(number, entry)
    for read, base in world.bases_under_way:
        if world.base == read or not rules.base_is_compared:
            yield attrs.evolve(world, base=base)
    for index, process in enumerate(world.processes):
        yield from steps_of(world, rules, index, process)


def steps_of(world: World, rules: Rules, index: int, process: Process) -> Iterator[World]:
    if process.step == "idle":
        yield world.read(index)
    elif process.step == "read":
        yield sending(world, index, Entry(index, process.epoch + 1))
    elif process.step == "leads":
        yield sending(world, index, Entry(index, process.epoch, process.decided + 1))
        if process.number > process.base:
            under_way = world.bases_under_way | {(process.base, process.number)}
            yield attrs.evolve(world, bases_under_way=under_way).with_process(index, step="cuts")
    elif process.step == "cuts":
        if world.base == process.number:
            removed = {
                (number, entry)
                for number, entry in world.log
                if number <= process.number and not (rules.fences_stay and is_fence(world.history, number))
            }
            yield attrs.evolve(world, log=world.log - removed).with_process(index, step="leads", base=world.base)
        yield world.with_process(index, step="leads", base=world.base)
    elif process.step == "sent":
        yield from answered(world, rules, index, process)
    elif process.step == "looks":
        assert process.sent is not None
        if world.base >= process.number and rules.contender_looks_at_base:
            yield world.with_process(index, step="idle")
        else:
            yield world.with_process(index, step="leads")
    if process.step != "idle":
        yield world.with_process(index, step="idle")  # it dies, and another begins


def sending(world: World, index: int, entry: Entry) -> World:
    number = world.processes[index].number + 1
    if number > ENTRIES_MAX:
        return world
    under_way = world.under_way | {(number, entry)}
    return attrs.evolve(world, under_way=under_way).with_process(index, step="sent", sent=entry)


def answered(world: World, rules: Rules, index: int, process: Process) -> Iterator[World]:
    """The entry is sent, again if an answer was lost; if there is one by its name, they are compared."""
    entry, number = process.sent, process.number + 1
    assert entry is not None
    after = world.putting(number, entry)
    if after.entry(number) != entry and rules.entries_are_compared:
        yield after.with_process(index, step="idle")
    elif entry.txid == 0:
        yield after.with_process(index, step="looks", number=number, epoch=entry.epoch)
    else:
        yield after.with_process(index, step="leads", number=number, decided=entry.txid)


def is_fence(history: tuple[Entry, ...], number: int) -> bool:
    return number == 1 or history[number - 1].epoch != history[number - 2].epoch


def reduced(world: World, rules: Rules) -> World:
    """Return the world that stands for it: without requests that no later step can grant."""
    under_way = {
        (number, entry)
        for number, entry in world.under_way
        if not (rules.fences_stay and number <= len(world.history) and is_fence(world.history, number))
    }
    bases_under_way = {
        (read, base) for read, base in world.bases_under_way if read == world.base or not rules.base_is_compared
    }
    return attrs.evolve(world, under_way=frozenset(under_way), bases_under_way=frozenset(bases_under_way))


def mistake(world: World) -> str | None:
    """Return what is wrong in a world."""
    for process in world.processes:
        if process.step == "leads":
            known = world.history[: process.number]
            if len(known) < process.number or max(entry.epoch for entry in known) != process.epoch:
                return "a process believes that an entry is written which no reader sees"
            if max((entry.txid for entry in known), default=0) != process.decided:
                return "a process believes that a transaction is decided which no reader sees"
    txids = [entry.txid for entry in world.history if entry.txid]
    if txids != list(range(1, len(txids) + 1)):
        return "a transaction is decided twice, or left out"
    number, entries = world.base, list(world.history[: world.base])
    while (found := world.entry(number + 1)) is not None:
        entries.append(found)
        number += 1
    if tuple(entries) != world.history:
        return "a reader sees something else"
    return None


def explored(rules: Rules) -> tuple[str | None, int]:
    """Visit all worlds; return the first mistake, and how many there are."""
    seen, front = {World()}, [World()]
    while front:
        found: list[World] = []
        for world in front:
            for after in [reduced(step, rules) for step in steps(world, rules)]:
                if after not in seen:
                    seen.add(after)
                    found.append(after)
                    wrong = mistake(after)
                    if wrong is not None:
                        return wrong, len(seen)
        front = found
    return None, len(seen)


@pytest.mark.long  # it explores the model, of which the code is no part: nothing changes but with the model
def test_two_processes_never_write_both() -> None:
    """Whatever arrives late or twice, and whoever stops where: what a process believes to be written is what all read."""
    wrong, worlds = explored(Rules())
    assert wrong is None
    assert worlds > 10_000


@pytest.mark.parametrize("rule", [field.name for field in attrs.fields(Rules)])
def test_each_rule_is_needed(rule: str) -> None:
    """Without one of the rules, some order of steps ends in a mistake."""
    wrong, _ = explored(Rules(**{rule: False}))
    assert wrong is not None
