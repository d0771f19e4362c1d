"""Rows from memory, for tests and first steps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from springtide.connectors import POSITION, Read, Slice, Source, Take
from springtide.query.connectors import ONE_STREAM, Marker, Rows
from springtide.query.errors import QueryError, shown
from springtide.query.plurals import plural
from springtide.query.types import END_OF_TIME, schema_from
from springtide.query.usage import usage
from springtide.values.row_checks import Misfit, frame_of_row, frame_of_rows, row_text


@dataclass(frozen=True, eq=False)
class Memory(Source):
    """Rows from memory, as one or several physical streams."""

    streams: Mapping[str, Rows] = field(repr=False)
    columns: pl.Schema
    positions: bool = True
    replayable = False  # the rows are in this process alone

    def schema(self) -> pl.Schema:
        """Names and types of the columns."""
        return self.columns

    def describe(self) -> str:
        """Say how much there is."""
        rows = sum(len(rows) for rows in self.streams.values())
        return f"memory, {plural(rows, 'row')}" + (
            f" in {len(self.streams)} physical streams" if len(self.streams) > 1 else ""
        )

    def read_all(self) -> Mapping[str, Rows]:
        """Return all rows."""
        return self.streams

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take the rows of each physical stream up to its next marker; every marker ends an epoch."""
        done: dict[str, list[int]] = {stream: list(at) for stream, at in (position or {}).items()}
        slices, times, dummies, fail = [], {}, list[int](), False
        for stream, rows in self.streams.items():
            index, row = done.get(stream, [0, 0])
            part, marker = _until_marker(rows, index, max(1, limit // len(self.streams)))
            if len(part):
                slices.append(Slice(stream, row, len(part), self._pack(part, row, ts)))
            index += len(part) + (marker is not None)
            if marker is not None and marker.time is not None:
                times[stream] = marker.time
                dummies.append(marker.time)
            fail |= marker is not None and marker.name == "FAIL"
            if index >= len(rows):
                times[stream] = END_OF_TIME
            done[stream] = [index, row + len(part)]
        backlog = sum(len(rows) - done[stream][0] for stream, rows in self.streams.items())
        if backlog and not slices and not times:  # only markers without rows here: continue after them
            later = self.take(done, limit, ts)
            return replace(later, fail=later.fail or fail)
        greatest, streams = max(dummies, default=None), tuple(self.streams)
        return Take(tuple(slices), done, times, streams, backlog == 0, backlog, fail, greatest)

    def upto(self, position: Any) -> Memory:
        """Cut the rows off that were not taken."""
        taken = {stream: index for stream, (index, _) in position.items()}
        return replace(self, streams={s: rows[: taken.get(s, 0)] for s, rows in self.streams.items()})

    def read(self, part: Slice) -> Read:
        """Unpack the rows that the driver packed."""
        frame, rejected = part.data
        return Read(pl.read_ipc_stream(frame).lazy(), tuple(rejected))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the rows in the driver: tasks get theirs in slices."""
        return {"streams": {}, "columns": self.columns, "positions": self.positions}

    def _pack(self, rows: Rows, position: int, ts: str | None) -> tuple[bytes, list[dict[str, Any]]]:
        rejected: list[dict[str, Any]] = []
        frame = (
            _placed(rows, position) if isinstance(rows, pl.DataFrame) else self._fitting(rows, position, ts, rejected)
        )
        out = io.BytesIO()
        frame.write_ipc_stream(out)  # a few rows take a tenth of the time that a file would
        return out.getvalue(), rejected

    def _fitting(
        self, rows: Sequence[Any], position: int, ts: str | None, rejected: list[dict[str, Any]]
    ) -> pl.DataFrame:
        """Put the rows that fit into a frame, with their positions; usually that is all of them."""
        with suppress(Misfit):
            return _placed(frame_of_rows(rows, self.columns, ts), position)
        frames = [_placed(pl.DataFrame(schema=self.columns), position)]
        for i, row in enumerate(rows, position):
            try:
                frames.append(_placed(frame_of_row(row, self.columns, ts), i))
            except Misfit as misfit:
                rejected.append({"position": i, "reason": str(misfit), "row": row_text(row)})
        return pl.concat(frames)


def _placed(frame: pl.DataFrame, position: int) -> pl.DataFrame:
    """Add the positions of rows, given the position of the first."""
    return frame.hstack([pl.int_range(position, position + frame.height, dtype=pl.Int64, eager=True).alias(POSITION)])


@usage("st.memory([{'src': 'A', 'ts': 1}])")
def memory(
    rows: Rows | Mapping[str, Rows] = (),
    *,
    schema: Mapping[str, Any] | None = None,
    positions: bool = True,
) -> Memory:
    """Take rows from memory: a frame or a list of dicts, or several of them as physical streams by name.

    Without `schema`, the columns are those of the first frame, or what Polars makes of the first rows. `positions=False` says that
    the rows have no order of their own, like those of a Spark DataFrame.

    >>> dict(st.memory([{"x": 1}, {"x": 2}]).schema())
    {'x': Int64}
    """
    streams = dict(rows) if isinstance(rows, Mapping) else {ONE_STREAM: rows}
    for stream, part in streams.items():
        _check_rows(stream, part)
    return Memory(streams, _schema(streams, schema), positions)


def _until_marker(rows: Rows, start: int, limit: int) -> tuple[Rows, Marker | None]:
    """Return the rows from `start` on, at most `limit`, and the marker that ends them."""
    if isinstance(rows, pl.DataFrame):
        return rows.slice(start, limit), None
    for i in range(start, min(len(rows), start + limit)):
        marker = rows[i]
        if isinstance(marker, Marker):
            return rows[start:i], marker
    return rows[start : start + limit], None


def _check_rows(stream: Any, rows: Any) -> None:
    if not isinstance(stream, str):
        raise QueryError("(memory)", f"{shown(stream)} is not the name of a physical stream", "give it as a string")
    if isinstance(rows, pl.DataFrame):
        return
    if isinstance(rows, str | bytes) or not isinstance(rows, Sequence):
        hint = "give a Polars frame, a list of dicts, or several of them by name"
        raise QueryError("(memory)", f"{shown(rows)} cannot be taken as rows", hint)
    for row in rows:
        if not isinstance(row, Mapping | Marker):
            hint = "a row is a dict; columns go into a frame: st.memory(pl.DataFrame({'x': [1, 2]}))"
            raise QueryError("(memory)", f"{shown(row)} is not a row", hint)


def _schema(streams: Mapping[str, Rows], schema: Mapping[str, Any] | None) -> pl.Schema:
    if schema is not None:
        return schema_from("(memory)", "schema", schema)
    for rows in streams.values():
        if isinstance(rows, pl.DataFrame):
            return rows.schema
        if plain := [row for row in rows if not isinstance(row, Marker)]:
            return _infer(plain)
    raise QueryError("(memory)", "there are no rows to infer the schema from", "give schema={'x': pl.Int64, ...}")


def _infer(rows: Sequence[Mapping[str, Any]]) -> pl.Schema:
    try:
        return pl.DataFrame(rows, infer_schema_length=None).schema
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise QueryError(
            "(memory)",
            f"the rows have no common schema ({str(error).splitlines()[0]})",
            "give schema={'x': pl.Int64, ...}",
        ) from None
