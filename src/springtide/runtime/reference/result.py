"""What a run of the reference returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from springtide.query.errors import QueryError, nearest


@dataclass(frozen=True, eq=False)
class Result:
    """The rows of each sink, and the rows that were not accepted.

    >>> x = st.source("x", st.memory([{"ts": 3, "n": 1}, {"ts": 1, "n": 2}, {"ts": None}]), ts="ts")
    >>> result = st.Query("copy", x.to(st.memory_sink())).run_reference()
    >>> result.rows()["n"].to_list(), result.late["x"]["n"].to_list(), result.rejected["x"]["reason"].to_list()
    ([1], [2], ["the time 'ts' is null"])
    """

    sinks: Mapping[str, pl.DataFrame]
    """Sink → its rows, ordered by ts, then by content."""
    late: Mapping[str, pl.DataFrame]
    """Source → its late rows, ordered by physical stream and position."""
    rejected: Mapping[str, pl.DataFrame]
    """Source → its rejected rows, ordered by physical stream and position."""

    def rows(self, sink: str | None = None) -> pl.DataFrame:
        """Return the rows of a sink, or of the only one if no name is given."""
        if sink is None:
            if len(self.sinks) > 1:
                raise QueryError("(result)", "the query has several sinks", f"name one of: {', '.join(self.sinks)}")
            (sink,) = self.sinks
        if sink not in self.sinks:
            raise QueryError("(result)", f"the query has no sink {sink!r}", nearest(sink, self.sinks))
        return self.sinks[sink]
