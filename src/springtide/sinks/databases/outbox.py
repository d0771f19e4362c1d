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
    """None: it is not known before somebody connects."""

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write an Arrow file."""
        why = without_key(rows, self.keys)
        if why is None and self.dialect is not None:
            why = self.dialect.unfit_value(rows)
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
