"""A coordinator of DataFrame spouts in tests: importable, for executors import it too."""

from spouts import Coordinator


class Ranges(Coordinator):
    """Ranges of whole numbers, ``step`` long, until there are ``rows``."""

    def __init__(self, rows: int, step: int) -> None:
        self.rows, self.step = rows, step
        self.end = 0

    def resume(self, txid, metadata):
        self.end = metadata[1] if metadata else 0

    def initialize_transaction(self, txid, previous_metadata):
        start, self.end = self.end, self.end + self.step
        return [start, self.end]

    def is_exhausted(self):
        return self.end >= self.rows
