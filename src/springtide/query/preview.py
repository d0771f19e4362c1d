"""A look at a stream while the query is still being written. Who knows how to run one says so here: the query language itself does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from springtide.query.stream import Stream

SAMPLE = 1_000
"""Rows of each source that a look takes, if nothing is said."""

Look = Callable[["Stream", int], pl.DataFrame]
"""Gives the rows of a stream that follow from the first so many of each source."""

_looks: list[Look] = []
_cards: list[Callable[[Stream], str]] = []


def provide(look: Look, card: Callable[[Stream], str]) -> None:
    """Say how to look at a stream, and how a notebook shows one."""
    _looks[:], _cards[:] = [look], [card]


def look(stream: Stream, sample: int) -> pl.DataFrame:
    """Look at a stream."""
    return _looks[0](stream, sample)


def card(stream: Stream) -> str:
    """Return a stream as HTML."""
    return _cards[0](stream)
