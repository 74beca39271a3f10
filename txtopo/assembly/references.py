"""Which versions of its reference tables a transaction is planned with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from txtopo.api.components.planned import Planned
from txtopo.api.reference import OTHER_TABLE_ADVICE, Reference, SeenVersion
from txtopo.errors import InputError
from txtopo.transactional.core.events import TransactionMetadata

__all__ = ["References"]


class References:
    """Looks for the newest version of each reference table, at most every ``refresh`` of it.

    Args:
        references: by name, those of the topology.
        now_secs: returns the seconds on a clock that never goes back.
    """

    def __init__(self, references: Mapping[str, Reference], now_secs: Callable[[], float] = time.monotonic) -> None:
        self._references = references
        self._now_secs = now_secs
        self._newest: dict[str, tuple[float, SeenVersion]] = {}
        """By name, when it was looked for and what was found."""

    def after(self, before: Planned) -> tuple[SeenVersion, ...]:
        """Return the versions that transactions see which begin now, after one that was planned before.

        Raises:
            ConfigError: there is no such table, or it can't be a reference.
            InputError: the table is another one than the transaction before has seen, or was put back.
            FailedException: it can't be read at the moment.
        """
        found = tuple(self._of(name) for name in self._references)
        for now in found:
            _refuse_other(before.seen(now.name), now, self._references[now.name].address)
        return found

    def completed(self, begun: Sequence[TransactionMetadata]) -> list[TransactionMetadata]:
        """Return those of some transactions that were planned without a reference of today's, each with its newest."""
        return [
            attrs.evolve(each, planned=self._with(each.planned, missing))
            for each in begun
            if (missing := [name for name in self._references if each.planned.seen(name) is None])
        ]

    def again(self, begun: Sequence[TransactionMetadata]) -> list[TransactionMetadata]:
        """Return those of some transactions that see another version than the newest, planned with the newest."""
        return [
            attrs.evolve(each, planned=self._with(each.planned, other))
            for each in begun
            if (other := [name for name in self._references if not _is_same(each.planned.seen(name), self._of(name))])
        ]

    def _with(self, planned: Planned, names: Iterable[str]) -> Planned:
        news = {name: _instead(self._of(name), planned.seen(name)) for name in names}
        held = {each.name: each for each in planned.references}
        return attrs.evolve(planned, references=tuple({**held, **news}.values()))

    def _of(self, name: str) -> SeenVersion:
        reference, now = self._references[name], self._now_secs()
        looked, newest = self._newest.get(name, (0.0, None))
        if newest is None or now - looked >= reference.refresh.total_seconds():
            newest = reference.newest(name)
            self._newest[name] = now, newest
        return newest


def _is_same(seen: SeenVersion | None, newest: SeenVersion) -> bool:
    return seen is not None and (seen.identity, seen.version) == (newest.identity, newest.version)


def _instead(newest: SeenVersion, seen: SeenVersion | None) -> SeenVersion:
    if seen is None:
        return newest
    first = seen.version if seen.instead_of is None else seen.instead_of
    return attrs.evolve(newest, instead_of=first)


def _refuse_other(seen: SeenVersion | None, newest: SeenVersion, address: str) -> None:
    if seen is None:
        return
    what = f"reference {newest.name!r}: the table at {address}"
    if seen.identity != newest.identity:
        raise InputError(
            f"{what} was replaced: the last transaction saw the one with the id {seen.identity}, and it has the id "
            f"{newest.identity}. {OTHER_TABLE_ADVICE}"
        )
    if seen.version > newest.version:
        raise InputError(
            f"{what} was put back: the last transaction saw its version {seen.version}, and its newest is "
            f"{newest.version}. {OTHER_TABLE_ADVICE}"
        )
