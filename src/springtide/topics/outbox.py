"""What tasks do with rows for a topic: records that no broker takes are refused while nothing is committed.

Later it would be too late: the rows of a committed epoch stay as they are, whatever becomes of the query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from springtide.connectors import ArrowFiles
from springtide.connectors.columns import beyond_calendars
from springtide.query.errors import SinkError
from springtide.topics import protobuf
from springtide.topics.encoding import Coding, encoded

STEP = "(kafka_sink)"
_AROUND = 300
"""Bytes of a record that are left for its header, the id of a schema, and what the protocol adds."""
LONGEST_NAMES = 200
"""Bytes that the names of a query and its sink may have in the header."""
_LAST = 2**31 - 1
"""The greatest number that a partition can have, and more bytes than any record has."""


@dataclass(frozen=True)
class RecordFiles(ArrowFiles):
    """Arrow files with rows that can be records."""

    coding: Coding = field(default_factory=lambda: Coding("json"))
    """How rows become records, without the registry: its secrets stay in the driver."""
    key: str | None = None
    partition: str | None = None
    longest: int = 0
    """Bytes of a record that the producer takes."""

    def write(self, rows: pl.DataFrame, path: Path) -> None:
        """Write an Arrow file."""
        for column in rows:
            if (what := beyond_calendars(column)) is not None:
                raise SinkError(
                    STEP, f"{column.name!r} has {what}, which a record cannot hold", "change it before this sink"
                )
        if self.coding.message is not None and (why := protobuf.unfit_rows(rows)) is not None:
            raise SinkError(
                STEP, f"{why}, which Protobuf cannot express", "take it out, or give it a value, before this sink"
            )
        self._check_sizes(rows)
        if self.partition is not None:
            numbers = rows[self.partition]
            if (wrong := numbers.filter(~numbers.is_between(0, _LAST))).len():
                hint = f"change the column {self.partition!r} before this sink, or leave it null for any partition"
                raise SinkError(
                    STEP,
                    f"the column {self.partition!r} sends a row to the partition {wrong[0]}, but partitions are numbered from 0",
                    hint,
                )
        super().write(rows, path)

    def _check_sizes(self, rows: pl.DataFrame) -> None:
        longest = self.longest - _AROUND
        if sum(_most(column) + _most(pl.Series([column.name])) for column in rows) <= longest:
            return  # as nearly always: there is nothing to encode for it
        values, keys = encoded(rows, self.coding, self.key, b"")
        size = max((len(v or b"") + len(k or b"") for v, k in zip(values, keys, strict=True)), default=0)
        if size > longest:
            raise SinkError(
                STEP,
                f"a record has {size:,} bytes, but its producer takes at most {longest:,} besides the header",
                "make rows smaller before this sink, or set config={'message.max.bytes': …} and the topic's max.message.bytes",
            )


def _most(column: pl.Series) -> int:
    """Return how many bytes a value of a column can have in a record at most.

    >>> _most(pl.Series(["abc", None])), _most(pl.Series([[1, 2]]))
    (22, 106)
    """
    dtype = column.dtype
    if isinstance(dtype, pl.Array):
        return _most(column.arr.to_list())
    if isinstance(dtype, pl.List):
        return 4 + _greatest(column.list.len()) * (_most(column.explode()) + 1)
    if isinstance(dtype, pl.Struct):
        names = pl.Series(column.struct.fields, dtype=pl.String)
        return 4 + len(names) * _most(names) + sum(map(_most, column.struct.unnest()))
    if dtype.is_nested():  # a map: nobody knows before it is written
        return _LAST
    if isinstance(dtype, pl.Binary):
        return 4 + 2 * _greatest(column.bin.size())
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        return 4 + 6 * _greatest(column.cast(pl.String).str.len_bytes())
    return 50


def _greatest(numbers: pl.Series) -> int:
    found = numbers.max()
    return found if isinstance(found, int) else 0
