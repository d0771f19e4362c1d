"""What tasks do with rows for a database: values that it will not take are refused while nothing is committed.

Later it would be too late: the rows of a committed epoch stay as they are, whatever becomes of the query.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from springtide.connectors import ArrowFiles
from springtide.query.errors import SinkError
from springtide.sinks.databases.dialects import Dialect


@dataclass(frozen=True)
class TableFiles(ArrowFiles):
    """Arrow files with rows that a table takes."""

    sink: str = ""
    """What a user called, for messages."""
    keys: tuple[str, ...] = ()
    dialect: Dialect | None = None
    """None: it is not known before somebody connects. Then what the standard one holds may still be too much for it."""

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write an Arrow file."""
        dialect = self.dialect or Dialect()
        why = without_key(rows, self.keys) or with_long_key(rows, self.keys, dialect) or dialect.unfit_value(rows)
        if why is not None:
            raise SinkError(f"({self.sink})", *why)
        super().write(rows, path)


def without_key(rows: pl.DataFrame, keys: tuple[str, ...]) -> tuple[str, str] | None:
    """Say which key has no value in some row, and what to do; None if all have one.

    >>> without_key(pl.DataFrame({"a": [1], "b": [None]}), ("a", "b"))
    ("got a row without a value for the key 'b'", 'filter such rows out before this sink')
    """
    missing = next((key for key in keys if rows[key].null_count()), None)
    if missing is None:
        return None
    return f"got a row without a value for the key {missing!r}", "filter such rows out before this sink"


def with_long_key(rows: pl.DataFrame, keys: tuple[str, ...], dialect: Dialect) -> tuple[str, str] | None:
    """Say that the keys of some row are too long for an index, and what to do; None if all fit.

    >>> with_long_key(pl.DataFrame({"a": ["x" * 9], "b": ["y"]}), ("a", "b"), Dialect(longest_key=9))
    ("got a row whose keys have 10 bytes, but an index takes at most 9: 'a', 'b'", 'shorten them before this sink, or use a digest as the key')
    """
    texts = [pl.col(k).cast(pl.Binary).bin.size() for k in keys if rows[k].dtype in (pl.String, pl.Binary)]
    if dialect.longest_key is None or not texts or not rows.height:
        return None
    longest = rows.select(pl.sum_horizontal(texts).max()).item()
    if longest <= dialect.longest_key:
        return None
    problem = f"got a row whose keys have {longest:,} bytes, but an index takes at most {dialect.longest_key:,}: {', '.join(map(repr, keys))}"
    return problem, "shorten them before this sink, or use a digest as the key"
