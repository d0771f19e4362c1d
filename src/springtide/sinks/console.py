"""Rows on the screen."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Console:
    """Prints the rows of each epoch."""

    rows: int

    def check(self, schema: pl.Schema) -> str | None:
        """Take anything."""
        return None

    def describe(self) -> str:
        """Say where."""
        return "console"


def console(*, rows: int = 20) -> Console:
    """Print the rows of each epoch, at most `rows` of them.

    >>> st.console().describe()
    'console'
    """
    return Console(rows)
