"""Any streaming DataFrame of Spark: rate, files, socket, Kafka, Delta, …"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from springtide.connectors import MISFIT
from springtide.query.connectors import Rows, SourceConnector
from springtide.query.errors import QueryError
from springtide.query.usage import usage
from springtide.sources.unicode import checked
from springtide.sparks import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


TOPIC, PARTITION = "topic", "partition"
"""The columns of Kafka's frames that together identify a physical stream."""


@dataclass(frozen=True, eq=False)
class SparkSource(SourceConnector):
    """The rows of a streaming DataFrame. Spark reads them and keeps the offsets."""

    frame: DataFrame | None
    columns: pl.Schema
    stream: tuple[str, ...]
    """The columns that tell physical streams apart; none: there is one."""
    position: str | None

    @property
    def positions(self) -> bool:  # type: ignore[override]
        """Whether rows have a place in their physical stream."""
        return self.position is not None

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        """Whether rows may share a position: Spark may have made several of one message."""
        return True

    @property
    def topic(self) -> str | None:
        """A column that must be the same for all rows of a physical stream, though the query does not name it."""
        named = PARTITION in self.stream and TOPIC not in self.stream
        return TOPIC if named and self.columns.get(TOPIC) == pl.String else None

    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self.columns

    def describe(self) -> str:
        """Say what it is."""
        streams = f", a physical stream per {' and '.join(self.stream)}" if self.stream else ""
        return f"spark{streams}"

    def read_all(self) -> Mapping[str, Rows]:
        """Refuse, since a stream has no end."""
        raise QueryError(
            "(spark)",
            "a streaming DataFrame has no end, so it cannot be read as a whole",
            "give the rows: query.run_reference({'source': rows})",
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the DataFrame in the driver."""
        return {"frame": None, "columns": self.columns, "stream": self.stream, "position": self.position}


@usage("st.spark(spark.readStream.format('rate').load())")
def spark(frame: DataFrame, *, stream: str | Sequence[str] | None = None, position: str | None = None) -> SparkSource:
    """Read a streaming DataFrame.

    `stream` names the column, or the columns, that tell physical streams apart (of Kafka `["topic", "partition"]`; `"partition"` will do
    for a single topic), `position` the one with a row's place in its physical stream (Kafka's `offset`). Where Spark reads rows of one
    physical stream in several tasks (`minPartitions`), they are brought together again. Without a position the rows of a
    micro-batch are a set: ties are ordered by content, and a row is late when it is behind the earlier micro-batches.
    """
    from pyspark.sql import DataFrame  # only those who use Spark wait for the import

    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise QueryError(
            "(spark)",
            "this is not a streaming DataFrame",
            "use spark.readStream…; for existing files use st.parquet(path)",
        )
    streams = (stream,) if isinstance(stream, str) else tuple(stream or ())
    for name in (*streams, position):
        if name is not None and name not in frame.columns:
            raise QueryError(
                "(spark)", f"there is no column {name!r}", f"its columns are {', '.join(sorted(frame.columns))}"
            )
    empty = pl.from_arrow(arrow_schema(frame.schema).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return SparkSource(frame, empty.schema, streams, position)


def two_topics(source: str, stream: str, topics: Iterable[str]) -> QueryError:
    """Return the error for rows of two topics in one physical stream."""
    return QueryError(
        f"{source} (source)",
        f"the physical stream {stream!r} has rows of the topics {' and '.join(map(repr, sorted(topics)))}, each with an order and a time of its own",
        'separate them: st.spark(frame, stream=["topic", "partition"], …), with a new checkpoint; nothing of this epoch was committed',
    )


def label_of(values: Sequence[Any]) -> str:
    """Return the name of a physical stream, made from the values of its columns.

    >>> label_of((3,)), label_of(("calls", 3))
    ('3', 'calls:3')
    """
    if len(values) == 1:
        return str(values[0])
    return ":".join(str(v).replace("\\", "\\\\").replace(":", "\\:") for v in values)


def tuples(source: SparkSource, batch: pa.Array) -> pl.DataFrame:
    """Turn Spark's rows of one source into columns of the source's types, and say which rows have strings that are not UTF-8."""
    return checked(batch).cast(pl.Schema({**source.columns, MISFIT: pl.String()}))
