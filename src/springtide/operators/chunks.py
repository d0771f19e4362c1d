"""Rows of an operator in pieces: not too small to be worth the way, not too large for memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

PIECE = 500_000
"""So many rows are handed on at once."""


def in_pieces(parts: Iterable[pl.DataFrame], nothing: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Gather rows until they are worth being handed on; at the end what there is, also nothing.

    >>> rows = pl.DataFrame({"x": [1]})
    >>> [piece.height for piece in in_pieces([rows, rows], rows.clear())]
    [2]
    """
    gathered, height = [nothing], 0
    for part in parts:
        gathered.append(part)
        height += part.height
        if height >= PIECE:
            yield pl.concat(gathered)
            gathered, height = [nothing], 0
    yield pl.concat(gathered) if height else nothing
