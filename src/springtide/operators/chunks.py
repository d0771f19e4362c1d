"""An operator's rows in pieces: large enough to be worth passing on, small enough to fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

PIECE = 500_000
"""How many rows are passed on at once."""


def in_pieces(parts: Iterable[pl.DataFrame], nothing: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Gather rows until there are enough to pass on; the last piece holds whatever is left and may be empty.

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
