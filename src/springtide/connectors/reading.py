"""All rows of a source at once, for the reference and for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from springtide.connectors.owner import Lineage, Owner
from springtide.connectors.source import MISFIT, POSITION, UNLIMITED, Read, Slice, Source
from springtide.query.connectors import ONE_STREAM, Rows
from springtide.query.ids import Generation
from springtide.values.row_checks import Misfit


def read_everything(source: Source) -> Mapping[str, Rows]:
    """Return all rows that are there now: physical stream → rows in the order of their positions, rejected ones at their places."""
    feed = source.open(_reader(source))
    reads: dict[str, list[tuple[Slice, Read]]] = {}
    position: Any = source.beginning
    try:
        while True:
            take = feed.take(position, UNLIMITED, None)
            for stream in take.streams or ([] if take.slices else [ONE_STREAM]):
                reads.setdefault(stream, [])
            for part in take.slices:
                reads.setdefault(part.stream, []).append((part, source.read(part)))
            if take.ended or not take.slices:
                break
            position = take.position
    finally:
        feed.close()
    return {stream: _together(found, source.schema()) for stream, found in reads.items()}


def read_some(source: Source, limit: int) -> tuple[Mapping[str, Rows], bool]:
    """Return about the first `limit` rows of a source, or all that are there now, and whether these are all there will ever be."""
    feed = source.open(_reader(source))
    try:
        take = feed.take(source.beginning, limit, None)
        reads: dict[str, list[tuple[Slice, Read]]] = {
            stream: [] for stream in take.streams or ([] if take.slices else [ONE_STREAM])
        }
        for part in take.slices:
            reads.setdefault(part.stream, []).append((part, source.read(part)))
    finally:
        feed.close()
    return {stream: _together(found, source.schema()) for stream, found in reads.items()}, take.ended


def _reader(source: Source) -> Owner:
    return Owner("reference", "source", Lineage("reference"), Generation(0), kind="source", schema=source.schema())


def _together(reads: list[tuple[Slice, Read]], columns: pl.Schema) -> Rows:
    frames = [read.rows.collect() for _, read in reads]
    if any(read.rejected for _, read in reads) or any(MISFIT in frame.columns for frame in frames):
        return [
            row for (part, read), frame in zip(reads, frames, strict=True) for row in _rows(part, read, frame, columns)
        ]
    return pl.concat([pl.DataFrame(schema=columns), *(f.select(list(columns)) for f in frames)])


class _Rejected(dict[str, Any]):
    """A row that was rejected while it was read, for the reference: when asked for its columns, it raises the reason."""

    def __init__(self, reason: str, row: Mapping[str, Any]) -> None:
        super().__init__(row)
        self._reason = reason

    def __iter__(self) -> Iterator[str]:
        raise Misfit(self._reason)


def _rows(part: Slice, read: Read, frame: pl.DataFrame, columns: pl.Schema) -> Iterator[Mapping[str, Any]]:
    """Return the rows of a slice one by one, rejected ones at their places."""
    rows: dict[int, Mapping[str, Any]] = {
        r["position"]: _Rejected(r["reason"], json.loads(r["row"])) for r in read.rejected
    }
    places = (
        frame[POSITION].to_list() if POSITION in frame.columns else range(part.position, part.position + frame.height)
    )
    reasons = frame[MISFIT].to_list() if MISFIT in frame.columns else [None] * frame.height
    for i, (place, reason) in enumerate(zip(places, reasons, strict=True)):
        row = frame.select(list(columns))[i]
        rows[place] = (
            {c.name: c for c in row.get_columns()} if reason is None else _Rejected(reason, row.row(0, named=True))
        )
    yield from (row for _, row in sorted(rows.items()))
