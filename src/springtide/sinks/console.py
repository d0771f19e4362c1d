"""Rows on the screen."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from springtide.connectors import Publication, Sink
from springtide.query.errors import QueryError
from springtide.query.plurals import plural
from springtide.query.types import whole
from springtide.query.usage import usage


@dataclass(frozen=True)
class Console(Sink):
    """Prints the rows of each epoch."""

    rows: int

    def describe(self) -> str:
        """Say where the rows go."""
        return "console"

    def publish(self, publication: Publication) -> None:
        """Print the rows, if there are any."""
        rows = publication.frame()
        if rows.height:
            with pl.Config(tbl_rows=self.rows, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
                print(f"epoch {publication.epoch}, {publication.sink}: {plural(rows.height, 'row')}\n{rows}")


@usage("st.console(rows=20)")
def console(*, rows: int = 20) -> Console:
    """Print the rows of each epoch, at most `rows` of them.

    >>> st.console().describe()
    'console'
    """
    rows = whole("(console)", "rows", rows)
    if rows < 1:
        raise QueryError("(console)", f"rows={rows} prints nothing", "give a number above zero")
    return Console(rows)
