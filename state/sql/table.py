"""The table of a state in a database, as coordinators find it: made, inspected, opened, moved aside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs

from state.marks import Mark, MarkedTable, Owner
from state.sql.columns import NAME_BYTES_MAX
from state.sql.database import Columns, Database, Transaction
from state.sql.marks import MARKS_TABLE, create_marks, names_of_marks, put_mark, read_mark, rename_mark
from txtopo.api.state import CanBeRenamed, TableDescription
from txtopo.api.values import StateKind
from txtopo.errors import ConfigError, DivergenceError

ASIDE = ".before-repair-"

_LOCK = 7_808_351_944_117_319_265
"""Of PostgreSQL's advisory locks, the one under which tables are made, so that two makers come one after another."""

_COLLATION = """
SELECT columns.coll FROM pragma_index_list(?) AS indexes JOIN pragma_index_xinfo(indexes.name) AS columns
WHERE indexes.origin = 'pk' AND columns.key AND columns.coll <> 'BINARY'
"""
"""How SQLite compares a primary key, if not byte by byte; PostgreSQL tells that with the type."""


@attrs.define(eq=False)
class SqlTable(MarkedTable, CanBeRenamed):
    """A table by its name, with the columns that a state declares."""

    database: Database
    name: str
    schema: str | None
    kind: StateKind
    columns: Columns

    @property
    def address(self) -> str:
        """The database's URL without its password, and the table's name."""
        return self.database.address_of(self.name, self.schema)

    @contextlib.contextmanager
    def transaction(self, problem: str, *, is_write: bool = True) -> Iterator[tuple[Transaction, Transaction]]:
        """Begin a transaction on the table and on the marks; see :meth:`Database.transaction`."""
        text = f"the table {self.name!r} {problem}"
        with self.database.transaction(text, self.name, self.schema, is_write=is_write) as rows:
            marks = type(rows)(rows.connection, self._quoted(rows, MARKS_TABLE))
            yield rows, marks

    def open(self, owner: Owner, epoch: int) -> Mark:
        """Make the table if it is not there, and fence every coordinator of an earlier epoch; return its mark.

        Raises:
            DivergenceError: the table is not the state's.
            LostLead: a newer epoch has opened it.
            ConfigError: the database can't keep all texts.
            StateFailure: the database failed.
        """
        # One transaction: a crash leaves the table and its mark, or neither.
        with self.transaction("can't be opened") as (rows, marks):
            if self.database.is_postgresql:
                rows.run(f"SELECT pg_advisory_xact_lock({_LOCK})")
                (encoding,) = rows.run("SHOW server_encoding").first()
                if encoding != "UTF8":
                    raise ConfigError(
                        f"the database of {self.address} keeps texts in {encoding}, which lacks characters that a "
                        "record may have: use one with the encoding UTF8"
                    )
            if not self._has(rows, MARKS_TABLE):
                create_marks(marks)
            mark, is_there = read_mark(marks, self.name, locks=True), self._has(rows, self.name)
            if mark is not None:
                mark.check_owner(owner, self.address)
                mark.check_epoch(epoch, self.address)
            if is_there:
                self._check(rows, mark)
            else:
                if mark is not None and mark.txid is not None:
                    raise DivergenceError(
                        f"the table {self.address} is gone; it was at {mark.txid}: restore it, or run 'txtopo repair'",
                        txid=mark.txid,
                    )
                rows.create(self.columns)
            mark = attrs.evolve(mark or Mark.new(owner, self.kind.value, epoch), epoch=epoch)
            put_mark(marks, self.name, mark)
        return mark

    def describe(self) -> TableDescription | None:
        """Return the table's description; see :meth:`StateTable.describe`."""
        if not self.database.is_there:
            return None
        with self.transaction("can't be read", is_write=False) as (rows, marks):
            if not self._has(rows, self.name):
                return None
            mark = read_mark(marks, self.name) if self._has(rows, MARKS_TABLE) else None
            if mark is None:
                self._check(rows, None)
                return None
            misfit = self._misfit(rows, mark)
        return mark.described(misfit)

    def mark(self) -> Mark | None:
        """Return the table's mark; None if there is none."""
        if not self.database.is_there:
            return None
        with self.transaction("can't be read", is_write=False) as (rows, marks):
            return read_mark(marks, self.name) if self._has(rows, MARKS_TABLE) else None

    def is_kept(self, txid: int | None) -> bool:
        """Return whether the rows as of a transaction can be had; see :meth:`StateTable.is_kept`.

        The rows of a table without keys are as they were put. Of a keyed one only the newest values are there.
        """
        mark = self.mark()
        last = None if mark is None else mark.txid
        if not txid or last is None:
            return not txid
        return txid <= last if self.kind is StateKind.ROWS else txid == last

    @property
    def no_past(self) -> str:
        """Why a keyed table can't go back; see :attr:`StateTable.no_past`."""
        return (
            "" if self.kind is StateKind.ROWS else "an SqlState has the newest values, and none of earlier transactions"
        )

    def asides(self) -> list[int]:
        """Return the numbers of the tables set aside; see :meth:`StateTable.asides`."""
        if not self.database.is_there:
            return []
        with self.transaction("can't be read", is_write=False) as (rows, marks):
            names = names_of_marks(marks) if self._has(rows, MARKS_TABLE) else []
        numbers = (name.removeprefix(self.name + ASIDE) for name in names if name.startswith(self.name + ASIDE))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def set_aside(self, number: int) -> None:
        """Rename the table and its mark; see :meth:`StateTable.set_aside`."""
        if not self.database.is_there:
            return
        aside = f"{self.name}{ASIDE}{number}"
        if len(aside.encode()) > NAME_BYTES_MAX:
            raise ConfigError(
                f"the table {self.address} can't be renamed to {aside}, which is too long: drop it by hand"
            )
        with self.transaction("can't be set aside") as (rows, marks):
            if self._has(rows, self.name):
                rows.run(f"ALTER TABLE {rows.table} RENAME TO {rows.quoted(aside)}")
            if self._has(rows, MARKS_TABLE):  # a table that was dropped has its mark still, which would refuse another
                rename_mark(marks, self.name, aside)

    def rename(self, topology_id: str, name: str, epoch: int) -> None:
        """Make the table that of a state and a topology with other names; see :meth:`CanBeRenamed.rename`."""
        with self.transaction("can't be renamed") as (_, marks):
            mark = read_mark(marks, self.name, locks=True)
            if mark is not None:
                mark.check_epoch(epoch, self.address)
                owner = Owner(topology_id, name, mark.owner.incarnation)
                put_mark(marks, self.name, attrs.evolve(mark, owner=owner, epoch=epoch))

    def _check(self, rows: Transaction, mark: Mark | None) -> None:
        """Refuse a table that is not as declared, or that has rows of somebody else's."""
        misfit = self._misfit(rows, mark)
        if misfit is not None:
            raise DivergenceError(
                f"the table {self.address} does not fit its state: {misfit}", txid=None if mark is None else mark.txid
            )
        if mark is None and not rows.is_empty():
            raise DivergenceError(
                f"the table {self.address} has rows that no state of txtopo has written: give the state a table of its "
                "own, or empty it"
            )

    def _misfit(self, rows: Transaction, mark: Mark | None) -> str | None:
        """Describe how a table that is there differs from the declaration."""
        import sqlalchemy as sa  # noqa: PLC0415 - an extra of the installation

        if mark is not None and mark.kind != self.kind.value:
            return f"it is {mark.kind}, not {self.kind.value}"
        inspector, dialect = sa.inspect(rows.connection), rows.connection.dialect
        try:
            columns = inspector.get_columns(self.name, self.schema)
            primary = inspector.get_pk_constraint(self.name, self.schema).get("constrained_columns", [])
        except sa.exc.NoSuchTableError:
            return "SQLite takes it for one that is there, whose name differs in capital letters only"
        types = {str(column["name"]): str(column["type"].compile(dialect)).upper() for column in columns}
        declared = {name: rows.type_of(kind) for name, kind in self.columns.types.items()}
        wrong = [
            f"{name} {types.get(name, 'is missing')}, not {kind}"
            for name, kind in declared.items()
            if types.get(name) != kind
        ]
        more = [f"{name} {kind}, which is not declared" for name, kind in types.items() if name not in declared]
        if wrong or more:
            return f"its columns are {', '.join([*wrong, *more])}"
        key = list(self.columns.schema.names[: self.columns.keys])
        if self.columns.keys and sorted(primary) != sorted(key):
            return f"its primary key is ({', '.join(primary)}), not ({', '.join(key)})"
        collation = None if self.database.is_postgresql else rows.run(_COLLATION, (self.name,)).scalar()
        if collation is not None:
            return f"its primary key is compared by {collation}, which takes different texts for one"
        return None

    def _has(self, rows: Transaction, name: str) -> bool:
        import sqlalchemy as sa  # noqa: PLC0415 - an extra of the installation

        return bool(sa.inspect(rows.connection).has_table(name, self.schema))

    def _quoted(self, rows: Transaction, name: str) -> str:
        return rows.quoted(name) if self.schema is None else f"{rows.quoted(self.schema)}.{rows.quoted(name)}"
