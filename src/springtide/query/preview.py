"""A look at a stream while the query is still being written. The query language cannot run a stream itself: the code that can registers here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from springtide.query.stream import Stream

SAMPLE = 1_000
"""How many rows of each source a look takes by default."""

Look = Callable[["Stream", int], pl.DataFrame]
"""Returns the rows of a stream that result from the first rows of each source; the number says how many of them."""

_looks: list[Look] = []
_cards: list[Callable[[Stream], str]] = []


def provide(look: Look, card: Callable[[Stream], str]) -> None:
    """Register how to look at a stream, and how a notebook shows one."""
    _looks[:], _cards[:] = [look], [card]


def look(stream: Stream, sample: int) -> pl.DataFrame:
    """Return the rows of a stream that result from the first `sample` rows of each source."""
    return _looks[0](stream, sample)


def card(stream: Stream) -> str:
    """Return a stream as HTML."""
    return _cards[0](stream)
