"""Tables of state: how the rows of one are merged and when they fall out of use.

State is a log: an epoch adds segments and changes none. What is in them falls out of use in one of three ways: its slot has passed, a newer
version of its key was written, or the whole table was rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

FIRST_SLOT = -(2**63)

VERSION = "__version"
"""The epoch that wrote a row, where the newest version of a key counts."""
ALIVE = "__alive"
"""Whether there is anything of the key in this version; a column of tables whose keys can be gone."""


@dataclass(frozen=True)
class StateTable:
    """One table in the state of an operator."""

    slot: str | None = None
    """The column with the time slot (an integer or a time): a segment goes when all its slots are older than `Operator.oldest` says."""
    fold: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Makes fewer rows of those of several segments when these are merged."""
    whole: bool = False
    """What is written replaces all that there was."""
    versions: bool = False
    """Rows are versions of keys (`versions.py`). Segments of any size are merged; rows that are not alive go when nothing older is left."""
    derived: bool = False
    """It can be worked out from the other tables of the operator: people who look at the state are not shown it."""
