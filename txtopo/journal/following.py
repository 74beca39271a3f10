"""Follows a journal: reads its committed transactions in order, while the topology may be running.

A group is certain once another one follows it, or once a later header says that it is committed: a coordinator commits
one after another. So a follower is at most one group behind, until somebody who holds the lead says what is committed.

A repair may take the topology back below what was read already. Then the header of a later epoch has a lower committed
txid, and the follower raises an error.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from txtopo.api.components.planned import NEVER, Planned
from txtopo.errors import ConfigError, DivergenceError
from txtopo.files.folder import Folder, Item
from txtopo.files.records import DAMAGE, from_json
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTransaction
from txtopo.journal.search import JournalFiles, damaged


class JournalFollower:
    """Reads the transactions of a journal after a given one.

    Args:
        folder: the journal.
        after: the transaction that the first one follows; 0 to begin with transaction 1.
        epoch: the epoch from whose part that one was read earlier; 0 if that is unknown.
        bytes_max: how much of a file is read at a time.
        transactions_max: about how many transactions are returned at a time.

    Raises:
        ConfigError: the journal does not go back that far.
    """

    def __init__(
        self, folder: Folder, after: int, epoch: int = 0, *, bytes_max: int = 4 << 20, transactions_max: int = 1_000
    ) -> None:
        self._bytes_max, self._transactions_max = bytes_max, transactions_max
        self._folder = folder
        self._files = JournalFiles(folder)
        self._path = ""
        self._offset = 0
        self._lines: deque[bytes] = deque()
        self.epoch = epoch
        """The epoch that the last transaction was read from: no later one may begin before it."""
        self._last: JournalEntry | None = None
        """The last entry that was read, whose group may be in flight still."""
        self.after = after
        """The last transaction that was returned."""
        self.metadata: Any = None
        """The metadata of the transaction ``after`` that was given; None until the first ``read``, and of 0."""
        self.planned: Planned = NEVER
        """When it was planned."""
        self._found_first = after == 0
        first = next(iter(self._files.complete_files()), None)
        if first is None or first[1].committed > after:
            begins = "is empty" if first is None else f"begins with transaction {first[1].committed + 1}"
            raise ConfigError(
                f"the journal {folder} {begins}, so it does not say what transaction {after + 1} was"
                + ("" if first is None else f"; --from {first[1].committed + 2} begins where it does")
            )

    def read(self, committed: int = 0) -> list[JournalTransaction]:
        """Return the next transactions that are certainly committed; none if there are no more for now.

        Args:
            committed: the last committed transaction, if the caller knows it.

        Raises:
            DivergenceError: the journal is damaged, or the topology has gone back behind what was read.
        """
        file, header, bound = self._next_file()
        try:
            transactions = self._read(file, header, bound, committed)
        except FileNotFoundError:  # a coordinator has just removed it, and those before it
            raise self._lacks(
                max(self.after + 1, *(each.committed for _, each in self._files.complete_files()))
            ) from None
        self._check_gap(transactions, bound)
        if transactions:
            self.after, self.epoch = transactions[-1].txid, header.epoch
        return transactions

    def _read(self, file: Item, header: JournalHeader, bound: int | None, committed: int) -> list[JournalTransaction]:
        if file.path != self._path:
            self._open(file, header)
        transactions: list[JournalTransaction] = []
        for entry in itertools.chain(() if self._last is None else (self._last,), self._entries(file)):
            self._last = entry
            limit = committed if bound is None else bound
            # Beyond a bound, its transactions ran again, as a later file says.
            if entry.last > limit and not (bound is None and self._is_followed(file)):
                break
            transactions += self._after(entry)
            self._last = None
            if len(transactions) >= self._transactions_max:
                break
        return transactions

    def _next_file(self) -> tuple[Item, JournalHeader, int | None]:
        """Return the file with the next transaction, and the last one of it that counts; None if that is open."""
        self.refuse_gone_back(self.after)
        files = self._files.complete_files()
        at = max((index for index, (_, header) in enumerate(files) if header.committed <= self.after), default=None)
        if at is None:
            raise self._lacks(files[0][1].committed if files else self.after + 1)
        return *files[at], min((header.committed for _, header in files[at + 1 :]), default=None)

    def refuse_gone_back(self, txid: int) -> None:
        """Raise a DivergenceError if the topology has gone back behind a transaction that was read already."""
        if self.epoch and any(
            header.committed < txid for _, header in self._files.complete_files() if header.epoch > self.epoch
        ):
            raise DivergenceError(
                f"the topology has gone back behind transaction {txid}, which was read from its journal already, "
                "so the transactions after it are no longer those that it has"
            )

    def _check_gap(self, transactions: Sequence[JournalTransaction], bound: int | None) -> None:
        if transactions and transactions[0].txid != self.after + 1:
            raise self._lacks(transactions[0].txid - 1)
        if not transactions and bound is not None and self.after < bound:
            raise self._lacks(bound)

    def _open(self, file: Item, header: JournalHeader) -> None:
        self._path, self._offset, self._last = file.path, self._files.begin_of(file), None
        self._lines.clear()
        if not self._found_first and header.committed == self.after:
            self.metadata, self.planned, self._found_first = header.metadata, header.planned, True

    def _after(self, entry: JournalEntry) -> list[JournalTransaction]:
        for transaction in entry.transactions if not self._found_first else ():
            if transaction.txid == self.after:
                self.metadata, self.planned, self._found_first = transaction.metadata, transaction.planned, True
        return [transaction for transaction in entry.transactions if transaction.txid > self.after]

    def _entries(self, file: Item) -> Iterator[JournalEntry]:
        """Yield the entries of a file that were not read yet; few lines at a time wait in memory."""
        while self._is_followed(file):
            try:
                yield from_json(json.loads(self._lines.popleft()), JournalEntry)
            except DAMAGE as error:
                raise damaged(self._folder, file, error) from error

    def _is_followed(self, file: Item) -> bool:
        """Whether a complete line follows those that were read."""
        size = self._bytes_max
        while not self._lines and self._offset < file.size:
            content = self._folder.get_range(file.path, self._offset, size)
            *lines, tail = content.split(b"\n")
            self._offset += len(content) - len(tail)
            self._lines.extend(lines)
            if not lines and len(content) < size:
                return False  # the last line is incomplete
            size *= 2
        return bool(self._lines)

    def _lacks(self, last: int) -> DivergenceError:
        return DivergenceError(f"the journal {self._folder} lacks transactions {self.after + 1} to {last}")
