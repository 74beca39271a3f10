"""The report of TransactionalWords: the most common words, and how many words occur how often."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from state import read_table

WORDS_SHOWN = 10
BUCKETS_SHOWN = 12


def print_report(console: Console, output: str, bucket_size: int) -> None:
    """Print the most common words, the buckets, and the paths of their tables in ``output``."""
    words = read_table(f"{output}/word_counts")
    buckets = read_table(f"{output}/buckets")
    counts = dict(zip(words["word"].to_pylist(), words["count"].to_pylist(), strict=True))
    sizes = dict(zip(buckets["bucket"].to_pylist(), buckets["count"].to_pylist(), strict=True))
    console.print()
    console.print(_commonest(counts))
    console.print()
    console.print(_chart(sizes, bucket_size))
    console.print()
    for name, rows in (("word_counts", len(counts)), ("buckets", len(sizes))):
        console.print(Text.assemble((f"{rows:>9,} rows  ", "dim"), f"{output}/{name}"), soft_wrap=True)


def _commonest(counts: Mapping[str, int]) -> Table:
    total = sum(counts.values())
    table = _table(f"The {WORDS_SHOWN} most common of {len(counts):,} words ({total:,} in all)")
    table.add_column("word", style="bold cyan")
    table.add_column("count", justify="right")
    table.add_column("")
    commonest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:WORDS_SHOWN]
    for word, count in commonest:
        table.add_row(word, f"{count:,}", Bar(commonest[0][1], 0, count, width=40, color="cyan"))
    return table


def _chart(sizes: Mapping[int, int], bucket_size: int) -> Table:
    """Return a chart with logarithmic bars, because the first bucket holds nearly all words."""
    table = _table("Words by number of occurrences (logarithmic bars)")
    table.add_column("times", justify="right")
    table.add_column("words", justify="right")
    table.add_column("")
    rows = [
        (f"{bucket * bucket_size:,}-{(bucket + 1) * bucket_size - 1:,}", sizes.get(bucket, 0))
        for bucket in range(min(BUCKETS_SHOWN, max(sizes, default=0) + 1))
    ]
    rest = sum(size for bucket, size in sizes.items() if bucket >= BUCKETS_SHOWN)
    if rest:
        rows.append((f"{BUCKETS_SHOWN * bucket_size:,} or more", rest))
    longest = math.log1p(max((size for _, size in rows), default=1)) or 1.0
    for times, size in rows:
        table.add_row(times, f"{size:,}", Bar(longest, 0, math.log1p(size), width=40, color="green"))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
