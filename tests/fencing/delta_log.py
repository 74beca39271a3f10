"""What is in the logs of Delta tables: which epoch wrote which version."""

import json
import pathlib

import attrs

from tests.acceptance.topologies import counts_of, read_total, read_words

STATES = ("words", "total")
TOPOLOGY = "words"


@attrs.frozen
class Version:
    """A version of a table, and what wrote it."""

    number: int
    epoch: int | None
    txid: int | None


def versions_of(output: pathlib.Path, state: str) -> list[Version]:
    """Return the versions of a state's table in order."""
    versions = []
    for path in sorted((output / state / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        marks = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
        versions.append(Version(int(path.stem), marks.get(f"{TOPOLOGY}/epoch"), marks.get(f"{TOPOLOGY}/{state}")))
    return versions


def all_versions(output: pathlib.Path) -> dict[str, list[Version]]:
    """Return the versions of all tables."""
    return {state: versions_of(output, state) for state in STATES}


def last_txid(output: pathlib.Path) -> int:
    """Return the last transaction in the table that is written last, 0 before the first."""
    return max((version.txid or 0 for version in versions_of(output, STATES[-1])), default=0)


def check_epochs(output: pathlib.Path, epochs: list[int]) -> None:
    """Check that each table was opened in these epochs, and that none wrote once a later one had begun."""
    for state, versions in all_versions(output).items():
        assert [version.number for version in versions] == list(range(len(versions)))
        made, *rest = versions
        assert made.epoch is None, state
        written = [version.epoch for version in rest]
        assert None not in written, state
        assert written == sorted(written), state
        assert sorted(set(written)) == epochs, state
        txids = [version.txid for version in versions if version.txid is not None]
        assert txids == sorted(set(txids)), state


def check_totals(output: pathlib.Path, rows: dict[int, list[list[str]]]) -> None:
    """Check both tables against a plain count of all rows."""
    expected = counts_of(rows)
    assert read_words(output) == expected
    assert read_total(output) == expected.total()
