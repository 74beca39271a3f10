"""Which versions of its reference tables a transaction is planned with: those that its number has seen before, if any.

A rewind or a repair takes transactions back, and the topology begins others with their numbers. These see what the
former ones saw, so whatever is different then, it is not the other side of a join. The journal has it. If one of them
is planned again, since that is gone, those after it see the newest, too: no version comes before one that was seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from txtopo.api.components.planned import Planned
from txtopo.api.reference import OTHER_TABLE_ADVICE, Reference, SeenVersion
from txtopo.errors import InputError
from txtopo.files.folder import Folder
from txtopo.journal.journal import read_journal
from txtopo.journal.search import JournalFiles
from txtopo.transactional.core.events import TransactionMetadata


class References:
    """Finds the version of each reference table that a transaction is to see.

    It looks for the newest one at most every ``refresh`` of the table; ``now_secs`` is a clock that never goes back.
    """

    def __init__(self, references: Mapping[str, Reference], now_secs: Callable[[], float] = time.monotonic) -> None:
        self._references = references
        self._now_secs = now_secs
        self._newest: dict[str, tuple[float, SeenVersion]] = {}
        """By name, when it was looked for and what was found."""
        self._undone: Mapping[int, tuple[SeenVersion, ...]] = {}

    def remember(self, undone: Mapping[int, tuple[SeenVersion, ...]]) -> None:
        """Take what transactions saw that are undone, by number: see :func:`seen_by_undone`."""
        self._undone = undone

    def after(self, before: Planned, txid: int) -> tuple[SeenVersion, ...]:
        """Return the versions that a transaction sees which begins now, after one that was planned before.

        Raises:
            ConfigError: there is no such table, or it can't be a reference.
            InputError: the table is another one than the transaction before has seen, or was put back.
            FailedException: it can't be read at the moment.
        """
        again = {
            version.name: version
            for version in self._undone.get(txid, ())
            if _may_follow(before.seen(version.name), version)
        }
        versions = tuple(again.get(name) or self._of(name) for name in self._references)
        for now in versions:
            _refuse_other(before.seen(now.name), now, self._references[now.name].address)
        return versions

    def completed(self, transactions: Sequence[TransactionMetadata]) -> list[TransactionMetadata]:
        """Return those of some transactions that were planned without a reference of today's, each with its newest."""
        return [
            attrs.evolve(transaction, planned=self._with(transaction.planned, missing))
            for transaction in transactions
            if (missing := [name for name in self._references if transaction.planned.seen(name) is None])
        ]

    def again(self, transactions: Sequence[TransactionMetadata]) -> list[TransactionMetadata]:
        """Return those of some transactions that see another version than the newest, planned with the newest."""
        return [
            attrs.evolve(transaction, planned=self._with(transaction.planned, other))
            for transaction in transactions
            if (
                other := [
                    name for name in self._references if not _is_same(transaction.planned.seen(name), self._of(name))
                ]
            )
        ]

    def _with(self, planned: Planned, names: Iterable[str]) -> Planned:
        news = {name: _instead(self._of(name), planned.seen(name)) for name in names}
        by_name = {reference.name: reference for reference in planned.references}
        return attrs.evolve(planned, references=tuple({**by_name, **news}.values()))

    def _of(self, name: str) -> SeenVersion:
        reference, now = self._references[name], self._now_secs()
        looked, newest = self._newest.get(name, (0.0, None))
        if newest is None or now - looked >= reference.refresh.total_seconds():
            newest = reference.newest(name)
            self._newest[name] = now, newest
        return newest


def seen_by_undone(journal: Folder | None, committed: int) -> dict[int, tuple[SeenVersion, ...]]:
    """Return what transactions after the last committed one saw that were committed and then undone, by number."""
    if journal is None or all(header.undone_until <= committed for _, header in JournalFiles(journal).complete_files()):
        return {}
    shared: dict[tuple[SeenVersion, ...], tuple[SeenVersion, ...]] = {}
    return {
        transaction.txid: shared.setdefault(transaction.planned.references, transaction.planned.references)
        for part in read_journal(journal)  # the oldest first: what was undone last counts
        for entry in part.entries
        for transaction in entry.transactions
        if transaction.txid > committed
    }


def _is_same(planned: SeenVersion | None, newest: SeenVersion) -> bool:
    return planned is not None and (planned.identity, planned.version) == (newest.identity, newest.version)


def _may_follow(planned: SeenVersion | None, later: SeenVersion) -> bool:
    """Return whether a transaction may see a version after one that saw another; not if that was planned again."""
    return planned is None or (planned.identity == later.identity and planned.version <= later.version)


def _instead(newest: SeenVersion, planned: SeenVersion | None) -> SeenVersion:
    if planned is None:
        return newest
    first = planned.version if planned.instead_of is None else planned.instead_of
    return attrs.evolve(newest, instead_of=first)


def _refuse_other(planned: SeenVersion | None, newest: SeenVersion, address: str) -> None:
    if planned is None:
        return
    where = f"reference {newest.name!r}: the table at {address}"
    if planned.identity != newest.identity:
        raise InputError(
            f"{where} was replaced: the last transaction saw the one with the id {planned.identity}, and it has the id "
            f"{newest.identity}. {OTHER_TABLE_ADVICE}"
        )
    if planned.version > newest.version:
        raise InputError(
            f"{where} was put back: the last transaction saw its version {planned.version}, and its newest is "
            f"{newest.version}. {OTHER_TABLE_ADVICE}"
        )
