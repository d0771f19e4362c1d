"""Rows to a Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from springtide.connectors import Publication, Sink
from springtide.query.errors import QueryError, shown
from springtide.query.usage import usage


@dataclass(frozen=True)
class Callback(Sink):
    """Calls a function with the rows of each epoch and the epoch's number."""

    function: Callable[[pl.DataFrame, int], None]

    def describe(self) -> str:
        """Say which function."""
        return f"function {getattr(self.function, '__name__', self.function)}"

    def publish(self, publication: Publication) -> None:
        """Call the function."""
        self.function(publication.frame(), publication.epoch)


@usage("st.callback(print)")
def callback(function: Callable[[pl.DataFrame, int], None]) -> Callback:
    """Call `function(rows, epoch)` for each epoch; after a crash the last epoch may come again with the same number.

    >>> st.callback(print).describe()
    'function print'
    """
    if not callable(function):
        raise QueryError("(callback)", f"{shown(function)} is not a function", "give one that takes (rows, epoch)")
    return Callback(function)
