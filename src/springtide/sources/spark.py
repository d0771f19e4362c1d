"""Any streaming DataFrame of Spark: rate, files, socket, Kafka, Delta, …"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from springtide.kernels.slices import MISFIT
from springtide.query.connectors import Rows
from springtide.query.errors import QueryError
from springtide.sources.unicode import checked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class SparkSource:
    """The rows of a streaming DataFrame. Spark reads them and keeps the offsets."""

    frame: DataFrame | None
    columns: pl.Schema
    stream: str | None
    position: str | None

    @property
    def positions(self) -> bool:
        """Whether rows have a place in their physical stream."""
        return self.position is not None

    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self.columns

    def describe(self) -> str:
        """Say what it is."""
        streams = f", a physical stream per {self.stream}" if self.stream else ""
        return f"spark{streams}"

    def read_all(self) -> Mapping[str, Rows]:
        """Refuse: a stream has no end."""
        raise QueryError(
            "(spark)",
            "a streaming DataFrame cannot be read at once",
            "give the rows: query.run_reference({'source': rows})",
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the DataFrame in the driver."""
        return {"frame": None, "columns": self.columns, "stream": self.stream, "position": self.position}


def spark(frame: DataFrame, *, stream: str | None = None, position: str | None = None) -> SparkSource:
    """Read a streaming DataFrame.

    `stream` names the column that tells physical streams apart (Kafka's `partition`), `position` the one with a row's place in its
    physical stream (Kafka's `offset`); both come with rows that Spark reads in one task per physical stream, as Kafka's. Without them the
    rows of a micro-batch are a set: ties are ordered by content, and a row is late when it is behind the earlier micro-batches.
    """
    from pyspark.sql import DataFrame  # only who uses Spark waits for it
    from pyspark.sql.pandas.types import to_arrow_schema

    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise QueryError(
            "(spark)",
            "this is not a streaming DataFrame",
            "use spark.readStream…; for files that are there use st.parquet(path)",
        )
    for name in (stream, position):
        if name is not None and name not in frame.columns:
            raise QueryError(
                "(spark)", f"there is no column {name!r}", f"there are: {', '.join(sorted(frame.columns))}"
            )
    empty = pl.from_arrow(to_arrow_schema(frame.schema, timezone="UTC").empty_table())
    assert isinstance(empty, pl.DataFrame)
    return SparkSource(frame, empty.schema, stream, position)


def tuples(source: SparkSource, batch: pa.Array) -> pl.DataFrame:
    """Turn Spark's rows of one source into columns of the source's types, and say which have texts that are none."""
    return checked(batch).cast(pl.Schema({**source.columns, MISFIT: pl.String()}))
