"""State tables: how the rows of a table are merged and when they become obsolete.

State is a log: an epoch adds segments and changes none. Rows become obsolete in one of three ways: their slot has passed, a newer version of
their key was written, or the whole table was rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

FIRST_SLOT = -(2**63)

VERSION = "__version"
"""The epoch that wrote a row, in tables where the newest version of a key counts."""
ALIVE = "__alive"
"""Whether the key has anything in this version; a column of tables whose keys can disappear."""


@dataclass(frozen=True)
class StateTable:
    """One table in the state of an operator."""

    slot: str | None = None
    """The column with the time slot (an integer or a time): a segment is dropped when all its slots are older than `Operator.oldest` says."""
    fold: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Reduces the rows of several segments to fewer rows when the segments are merged."""
    whole: bool = False
    """Whether each write replaces the whole table."""
    versions: bool = False
    """Rows are versions of keys (`versions.py`). Segments of any size are merged; rows that are not alive are dropped once nothing older is left."""
    derived: bool = False
    """It can be computed from the operator's other tables, so it is not shown to people who inspect the state."""
