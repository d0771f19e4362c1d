"""Incoming rows: each row of a physical stream is checked once, in position order, before anything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from springtide.query import steps
from springtide.query.connectors import Marker, Rows
from springtide.query.errors import QueryError
from springtide.query.stream import Stream
from springtide.query.types import END_OF_TIME, TS
from springtide.runtime.reference.tuples import BEGINNING_OF_TIME, OrderPlace, Tuple
from springtide.values.row_checks import Misfit, event_time, frame_of_row, row_text, time_column


@dataclass
class Arrived:
    """Everything that came from one source, and where its time stands after the last row."""

    tuples: list[Tuple] = field(default_factory=list)
    late: list[Tuple] = field(default_factory=list)
    rejected: list[Tuple] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    """The stream time of each physical stream."""
    greatest: int = BEGINNING_OF_TIME
    """The greatest time that is known: of a tuple that came in, or of a dummy."""

    @property
    def rows(self) -> int:
        """How many rows there were, accepted or not."""
        return len(self.tuples) + len(self.late) + len(self.rejected)

    @property
    def time(self) -> int:
        """The smallest stream time; a source without physical streams has none yet."""
        return min(self.times, default=BEGINNING_OF_TIME)


def rejected_schema(source: steps.Source) -> pl.Schema:
    """Return the columns of rejected rows, as the query declares them."""
    return Stream(source, steps.OUT, source.schema).rejected.schema


def arrive(source: steps.Source, name: str, streams: Mapping[str, Rows], bounded: bool) -> Arrived:
    """Accept or refuse the rows of all physical streams of a source. A bounded input ends by itself."""
    arrived = Arrived(times=[END_OF_TIME] if bounded and not streams else [])
    for stream, rows in streams.items():
        time = _judge(source, name, stream, rows, arrived)
        arrived.times.append(END_OF_TIME if bounded else time)
    return arrived


def _judge(source: steps.Source, name: str, stream: str, rows: Rows, arrived: Arrived) -> int:
    """Put each row of one physical stream where it belongs; return the stream time at the end."""
    time, position = BEGINNING_OF_TIME, -1
    for item in _items(rows):
        if isinstance(item, Marker):
            time = _mark(name, stream, item, time)
            arrived.greatest = max(arrived.greatest, BEGINNING_OF_TIME if item.time is None else item.time)
            continue
        position += 1
        if time == END_OF_TIME:
            raise QueryError(
                f"{name} (source)",
                f"the physical stream {stream!r} has rows after END",
                "let END be the last of its rows",
            )
        place = OrderPlace(name, stream, position if source.connector.positions else -1)
        try:
            one = _read(source, place, item)
        except Misfit as misfit:
            reason = {
                "source": name,
                "stream": stream,
                "position": position,
                "reason": str(misfit),
                "row": row_text(item),
            }
            arrived.rejected.append(Tuple(0, OrderPlace(name, stream, position), reason, rejected_schema(source)))
            continue
        if source.ts is not None and one.ts < time:
            arrived.late.append(one)
            continue
        arrived.tuples.append(one)
        if source.ts is not None:
            time = max(time, one.ts - source.max_disorder)
            arrived.greatest = max(arrived.greatest, one.ts)
    return time


def _items(rows: Rows) -> Iterator[Any]:
    if isinstance(rows, pl.DataFrame):
        for i in range(rows.height):
            yield {c.name: c for c in rows.slice(i, 1).get_columns()}
    else:
        yield from rows


def _mark(name: str, stream: str, marker: Marker, time: int) -> int:
    """Return the stream time after a marker. PAUSE and FAIL concern the engine's work, not the input."""
    if marker.name == "END":
        return END_OF_TIME
    if marker.name == "idle" and marker.time is not None:
        return max(time, marker.time)
    if marker.name not in ("PAUSE", "FAIL"):
        raise QueryError(
            f"{name} (source)",
            f"the physical stream {stream!r} has an unknown marker {marker}",
            "use those of springtide.testing",
        )
    return time


def _read(source: steps.Source, place: OrderPlace, row: Any) -> Tuple:
    frame = frame_of_row(row, source.columns, source.ts)
    if source.ts is None:
        return Tuple(0, place, frame, source.schema)
    ts = event_time(frame[source.ts])
    frame.replace_column(frame.columns.index(source.ts), time_column(TS, ts))
    return Tuple(ts, place, frame, source.schema)
