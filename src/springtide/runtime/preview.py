"""A look at a stream: the reference on the first rows of its sources.

The rows are those that a run would begin with: windows that the sample does not fill are not among them, unless the sample is all there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from springtide.connectors import Source
from springtide.connectors.reading import read_some
from springtide.query import preview, steps
from springtide.query.connectors import SinkConnector, SourceConnector
from springtide.query.graph import Graph
from springtide.query.html import columns_table, frame_table, note
from springtide.query.stream import Stream
from springtide.runtime import reference
from springtide.sources.files import FileSource
from springtide.sources.generate import Generator
from springtide.sources.memory import Memory

_SHOWN = 5
"""Rows of a stream that a notebook shows."""
_AT_HAND = (Memory, Generator, FileSource)
"""Sources that a notebook reads without being asked: it connects to no others merely because somebody looks at a stream."""


@dataclass(frozen=True)
class _Nowhere(SinkConnector):
    """The end of a stream that is only looked at."""

    def describe(self) -> str:
        """Say that rows go nowhere."""
        return "a look"


def look(stream: Stream, sample: int) -> pl.DataFrame:
    """Return the rows of a stream that follow from the first `sample` rows of each source."""
    graph = Graph("look", stream.to(_Nowhere()))
    inputs, complete = dict[str, reference.Given](), True
    for name, source in graph.of_kind(steps.Source).items():
        inputs[name], ended = _some(source.connector, sample)
        complete &= ended
    return reference.run(graph, inputs, bounded=complete).rows()


def _some(connector: SourceConnector, sample: int) -> tuple[reference.Given, bool]:
    if not isinstance(connector, Source):
        return connector.read_all(), True
    if isinstance(connector, Generator):  # not at the pace of its clock
        whole = connector.total is not None and connector.total <= sample
        some = replace(connector, rate=None, total=sample if connector.total is None else min(sample, connector.total))
        return some.read_all(), whole
    return read_some(connector, sample)


def card(stream: Stream) -> str:
    """Return a stream as HTML: its columns, and some rows if that needs no connection to anything."""
    shown = columns_table(stream.schema)
    sources = Graph("look", stream.to(_Nowhere())).of_kind(steps.Source).values()
    if not all(isinstance(source.connector, _AT_HAND) for source in sources):
        return shown + note("some rows: stream.head()")
    try:
        rows = look(stream, preview.SAMPLE)
    except Exception as error:  # an error here would hide the columns
        return shown + note(f"no rows: {str(error).partition(chr(10))[0]}")
    if not rows.height:
        return shown + note(
            f"the first {preview.SAMPLE:,} rows of each source produce no rows; look at more with stream.head(sample=…)"
        )
    return shown + frame_table(rows.head(_SHOWN)) + note("the first rows, by the reference")


preview.provide(look, card)
