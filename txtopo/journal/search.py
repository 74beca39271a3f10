"""Finds groups in a journal without reading all of it: what a look costs does not depend on the journal's length.

The groups of a file follow ``committed`` of its header, in order. So the only file that can have a transaction as it
counts is the newest whose header is below it, and in that file bisection by offsets finds the line. Of all other files,
only the headers are read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from txtopo.errors import DivergenceError
from txtopo.files.folder import Folder, Item
from txtopo.files.records import DAMAGE, from_json
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart, JournalTransaction
from txtopo.journal.journal import BLOCK_BYTES, by_names_in, first_line, header_of, journal_files


@attrs.frozen
class SearchSizes:
    """What a search of a journal reads at a time."""

    bytes: int = 8 * 1024
    """Of a file that is bisected; a part of it that is not larger is searched line by line."""
    near_lines: int = 16
    """So many lines are searched one after another before a file is bisected."""
    block_bytes: int = BLOCK_BYTES
    """Of a file that is read backwards; one that is not larger is read whole."""


class JournalFiles:
    """The files of a journal with their headers, each of which is read once."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._headers: dict[str, JournalHeader] = {}
        self._begins: dict[str, int] = {}

    def complete_files(self) -> list[tuple[Item, JournalHeader]]:
        """Return the files whose header is complete, oldest first; raise DivergenceError if a header is damaged."""
        files: list[tuple[Item, JournalHeader]] = []
        for file in journal_files(self.folder):
            if file.path not in self._headers:
                try:
                    line = first_line(self.folder, file)
                except FileNotFoundError:  # a coordinator has just removed it: the oldest go first
                    files.clear()
                    continue
                if not line.endswith(b"\n"):
                    continue
                try:
                    self._headers[file.path] = header_of(line, f"{self.folder}/{file.path}")
                except DAMAGE as error:
                    raise damaged(self.folder, file, error) from error
                self._begins[file.path] = len(line)
            files.append((file, self._headers[file.path]))
        return files

    def begin_of(self, file: Item) -> int:
        """Return where the first entry of a known file begins."""
        return self._begins[file.path]


def damaged(folder: Folder, file: Item, error: Exception) -> DivergenceError:
    """Return the error that a journal's file is damaged."""
    return DivergenceError(
        f"the journal's file {folder}/{file.path} can't be read ({error}): it is damaged; restore it, or move the "
        "journal's folder away to begin a new one"
    )


@attrs.frozen
class EnteredGroup:
    """A group that was entered, with the header of its coordinator, both by the names of today."""

    header: JournalHeader
    entry: JournalEntry

    def transaction(self, txid: int) -> JournalTransaction:
        """Return one of its transactions."""
        return next(each for each in self.entry.transactions if each.txid == txid)


class JournalSearch:
    """Finds groups of a journal, as it is at the moment of each call.

    All methods raise a DivergenceError if what they read is damaged.

    Args:
        folder: the journal's folder.
        is_meant: says by its header whether a file is; by default all are.
        sizes: what is read at a time.
    """

    def __init__(
        self,
        folder: Folder,
        is_meant: Callable[[JournalHeader], bool] = lambda _: True,
        sizes: SearchSizes = SearchSizes(),
    ) -> None:
        self._files = JournalFiles(folder)
        self._is_meant = is_meant
        self._sizes = sizes

    def _own_files(self) -> list[tuple[Item, JournalHeader]]:
        return [(file, header) for file, header in self._files.complete_files() if self._is_meant(header)]

    def headers(self) -> list[JournalHeader]:
        """Return the headers of all files, oldest first, with the names of today; none if there is no journal."""
        headers = self._own_files()
        return [by_names_in(headers[-1][1], JournalPart(header, ())).header for _, header in headers]

    def find(self, txid: int) -> EnteredGroup | None:
        """Return the group of a transaction that counts, the newest, too; None if the journal does not have it."""
        return next(
            (group for group in self.backwards(txid, txid) if group.entry.first <= txid <= group.entry.last), None
        )

    def all_with(self, txid: int) -> Iterator[EnteredGroup]:
        """Yield all groups with a transaction, newest first: also those that were dropped or undone."""
        headers = self._own_files()
        for file, header in reversed(headers):
            try:
                reaching = self._first_reaching(file, txid) if header.committed < txid else None
            except FileNotFoundError:  # a coordinator has just removed it, and all older ones
                return
            if reaching is not None:
                group = self._group(file, header, reaching[1], headers[-1][1])
                if group.entry.first <= txid:
                    yield group

    def around(self, txids: Iterable[int]) -> list[JournalPart]:
        """Return the parts of a journal, oldest first, with the groups of some transactions, and no more than it takes.

        What is left out comes before a part that :attr:`~txtopo.journal.entries.JournalPart.skips`. Its header says how
        things stood after the group before, of which nothing else is there. Each file has its first group and its last
        one, a small one all. By the rules of :func:`~txtopo.journal.journal.counting_parts`, some do not count.
        """
        headers = self._own_files()
        if not headers:
            return []
        # Where a later file goes on, an earlier one has been left.
        bounds = sorted({*txids, *(header.committed for _, header in headers)})
        parts: list[JournalPart] = []
        for (file, header), following in zip(headers, [*(header for _, header in headers[1:]), None], strict=True):
            try:
                parts += self._parts_around(file, header, following, bounds)
            except FileNotFoundError:  # a coordinator has just removed it: the oldest go first
                parts.clear()
        return [by_names_in(headers[-1][1], part) for part in parts]

    def _parts_around(
        self, file: Item, header: JournalHeader, following: JournalHeader | None, txids: Sequence[int]
    ) -> list[JournalPart]:
        """Return what :meth:`around` returns of a file, given the header of the one that follows."""
        begin = self._files.begin_of(file)
        if file.size - begin <= self._sizes.block_bytes:
            entries = [self._entry(file, line) for _, line in self._lines_after(file, begin - 1)]
            return [JournalPart(header, tuple(entries))]
        newest = next(self._backwards(file, begin, file.size), None)
        if newest is None:  # the first one is incomplete, and large
            return [JournalPart(header, ())]
        end = self._last_of(file, newest)
        lines = self._lines_after(file, begin - 1)
        position, reached, states = begin, header.committed, header.states
        parts = [JournalPart(header, ())]
        for txid in (header.committed + 1, *(number for number in txids if header.committed < number < end), end):
            if txid <= reached:  # of the same group
                continue
            near = itertools.islice(lines, self._sizes.near_lines)
            line_found = next((each for each in near if self._last_of(file, each[1]) >= txid), None)
            if line_found is None:
                line_found = self._first_reaching(file, txid)
                assert line_found is not None, "the last group reaches it"
                lines = self._lines_after(file, line_found[0] + len(line_found[1]))
            offset, entry = line_found[0], self._entry(file, line_found[1])
            if offset != position:
                is_last = following is not None and following.committed == entry.last
                later = following.states if following is not None and is_last else {}
                after = {name: later[name] for name in header.states if name in later and name not in entry.states}
                parts.append(JournalPart(self._header_at(file, header, states, after, (position, offset)), (), True))
                states = parts[-1].header.states
            parts[-1] = attrs.evolve(parts[-1], entries=(*parts[-1].entries, entry))
            states = {**states, **{name: entry.last for name in entry.states if name in states}}
            position, reached = offset + len(line_found[1]) + 1, entry.last
        return parts

    def _header_at(
        self,
        file: Item,
        header: JournalHeader,
        states: Mapping[str, int | None],
        txids: Mapping[str, int | None],
        skipped: tuple[int, int],
    ) -> JournalHeader:
        """Return the header that a file would have if it began after the lines between two offsets, ``skipped``.

        ``states`` are the last writes of states before those lines, ``txids`` those of some states after them.
        """
        all_txids = {**states, **txids}
        quoted_names = {name: json.dumps(name).encode() for name in header.states if name not in txids}
        last: JournalEntry | None = None
        for line in self._backwards(file, *skipped):
            # A cheap check before a line is parsed: most of those that are looked at name other states.
            if last is None or any(text in line for text in quoted_names.values()):
                entry = self._entry(file, line)
                last = last or entry
                all_txids |= {name: entry.last for name in entry.states if name in quoted_names}
                quoted_names = {name: text for name, text in quoted_names.items() if name not in entry.states}
            if not quoted_names:
                break
        assert last is not None, "there is a line in between"
        end = last.transactions[-1]
        return attrs.evolve(header, committed=end.txid, metadata=end.metadata, planned=end.planned, states=all_txids)

    def backwards(self, last: int | None = None, reaching: int = 0) -> Iterator[EnteredGroup]:
        """Yield the groups that count, newest first; see :func:`txtopo.journal.journal.counting_parts`.

        Args:
            last: begin with the group that has this transaction; None: with the newest.
            reaching: end with the group that has this transaction.
        """
        headers = self._own_files()
        newest = headers[-1][1] if headers else None
        bound: int | None = None
        """The last transaction that later files have not undone."""
        for file, header in reversed(headers):
            assert newest is not None, "there is a file"
            undone_to = min((turn.txid for turn in newest.turns if turn.epoch > header.epoch), default=None)
            if undone_to is not None and bound is not None:
                bound = min(bound, undone_to)
            is_void = bound is not None and header.committed >= bound
            if not is_void and (last is None or header.committed < last):
                for line in self._lines_until(file, bound, last):
                    group = self._group(file, header, line, newest)
                    if group.entry.last < reaching:
                        return
                    if last is None or group.entry.first <= last:
                        yield group
            bound = header.committed if bound is None else min(bound, header.committed)
            if bound < reaching:
                return

    def _group(self, file: Item, header: JournalHeader, line: bytes, newest: JournalHeader) -> EnteredGroup:
        group_states = by_names_in(newest, JournalPart(header, (self._entry(file, line),)))
        return EnteredGroup(group_states.header, group_states.entries[0])

    def _entry(self, file: Item, line: bytes) -> JournalEntry:
        try:
            return from_json(json.loads(line), JournalEntry)
        except DAMAGE as error:
            raise damaged(self._files.folder, file, error) from error

    def _lines_until(self, file: Item, bound: int | None, last: int | None) -> Iterator[bytes]:
        """Yield the lines of groups up to the one that has ``last``, and none that ends after a bound, last first."""
        try:
            end = None if bound is None else self._first_reaching(file, bound + 1)
            begin = None if last is None else self._first_reaching(file, last)
            position = file.size if end is None else end[0]
            if begin is not None and begin[0] < position:
                yield begin[1]
                position = begin[0]
            yield from self._backwards(file, self._files.begin_of(file), position)
        except FileNotFoundError:  # a coordinator has just removed it, and all older ones
            return

    def _first_reaching(self, file: Item, txid: int) -> tuple[int, bytes] | None:
        """Return the first line of a file whose group ends with a transaction or later, and its offset.

        Such a line begins from ``low`` on and before ``high``, or is ``found``.
        """
        low, high = self._files.begin_of(file), file.size
        line_found: tuple[int, bytes] | None = None
        while high - low > self._sizes.bytes:
            middle = (low + high) // 2
            offset, line = next(self._lines_after(file, middle), (high, b""))
            if offset >= high or self._last_of(file, line) >= txid:
                line_found = line_found if offset >= high else (offset, line)
                high = middle + 1  # no line begins from there to ``offset``
            else:
                low = offset + len(line) + 1
        for offset, line in self._lines_after(file, low - 1):
            if offset >= high:
                break
            if self._last_of(file, line) >= txid:
                return offset, line
        return line_found

    def _lines_after(self, file: Item, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield the complete lines that begin after an offset, with theirs."""
        content, begin, position = b"", -1, offset
        while position < file.size:
            size = min(self._sizes.bytes, file.size - position)
            block = self._files.folder.get_range(file.path, position, size)
            if not block:
                return
            content, position = content + block, position + len(block)
            *lines, content = content.split(b"\n")
            for line in lines:
                if begin >= 0:
                    yield begin, line
                begin = (offset if begin < 0 else begin) + len(line) + 1

    def _backwards(self, file: Item, start: int, end: int) -> Iterator[bytes]:
        return lines_backwards(self._files.folder, file, start, end, self._sizes.block_bytes)

    def _last_of(self, file: Item, line: bytes) -> int:
        try:
            return int(json.loads(line)["transactions"][-1]["txid"])
        except (*DAMAGE, IndexError) as error:
            raise damaged(self._files.folder, file, error) from error


def lines_backwards(
    folder: Folder, file: Item, start: int, end: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[bytes]:
    """Yield the complete lines between two offsets, the last one first; skip an incomplete last line."""
    position = end
    blocks: list[bytes] = []  # the blocks of a line whose start is not read yet, last block first
    is_cut_off = True
    while position > start:
        size = min(block_bytes, position - start)
        position -= size
        *before, last_line = folder.get_range(file.path, position, size).split(b"\n")
        blocks.append(last_line)
        for line in reversed(before):
            if not is_cut_off:
                yield b"".join(reversed(blocks))
            is_cut_off = False
            blocks = [line]
    if not is_cut_off:
        yield b"".join(reversed(blocks))
