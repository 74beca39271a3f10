"""Journals: that of the only topology in a folder, and long ones."""

from pathlib import Path

from txtopo.attempts import attempt_number
from txtopo.files.folder import Folder, LocalFolder
from txtopo.journal.ending import METADATA_DIR
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart, JournalTransaction
from txtopo.journal.folders import FOLDER
from txtopo.journal.writer import JournalWriter

LATER_MS = 1
"""After the time at which :func:`enter` says that a transaction was planned."""

HEADER = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, {}, {})
"""That of a journal of a topology that has just begun."""


def journal_in(output: Path) -> Path:
    """Return the folder of the journal in an output folder."""
    (folder,) = (output / METADATA_DIR / FOLDER).iterdir()
    return folder


def opened_journal(output: Path) -> LocalFolder:
    """Return it for the functions that read one."""
    return LocalFolder(journal_in(output))


def entered(first: int, last: int, epoch: int = 1, *states: str) -> JournalEntry:
    """Return the entry of a group, with metadata and input as runs have them."""
    transactions = tuple(
        JournalTransaction(
            txid, attempt_number(epoch, 1), txid, {"spout": (3, txid)}, {"spout": {"p": (txid * 3, txid * 3 + 3)}}
        )
        for txid in range(first, last + 1)
    )
    return JournalEntry(dict.fromkeys(states or ("t",), (1, 0)), transactions)


def long_journal(folder: Folder, transactions: int, a_group: int = 10) -> None:
    """Write a journal of many transactions with the product's writer: fast where a sync costs nothing."""
    writer = JournalWriter(
        folder, JournalHeader("top", "life", 1, {"spout": "repeatable"}, 0, None, {}, {"t": None}), 1 << 40
    )
    for first in range(1, transactions + 1, a_group):
        writer.enter(entered(first, first + a_group - 1))


def txids_in(parts: list[JournalPart]) -> list[int]:
    """Return the transactions of all entries, in order."""
    return [transaction.txid for part in parts for entry in part.entries for transaction in entry.transactions]


def enter(writer: JournalWriter, *txids: int) -> None:
    """Enter some groups of one transaction each."""
    for txid in txids:
        writer.enter(JournalEntry({}, (JournalTransaction(txid, 1, None, {}),)))
