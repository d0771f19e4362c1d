"""Checks that several families of steps share: names, keys, time and windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from springtide.query.building.labels import label_of
from springtide.query.errors import QueryError, shown
from springtide.query.expressions import check_columns, name_hint
from springtide.query.types import TS, Names, check_keys
from springtide.query.windows import Window

if TYPE_CHECKING:
    from springtide.query.stream import Stream


def names_of(label: str, option: str, names: Any) -> tuple[str, ...]:
    """Return one name or a sequence of names as a tuple; whether such columns exist is checked later."""
    if isinstance(names, str):
        return (names,)
    if isinstance(names, list | tuple):
        return tuple(names)
    hint = "write one name, or a list of names"
    if isinstance(names, pl.Expr):
        hint = name_hint(names)
    elif isinstance(names, set | frozenset):
        hint = "a set has no order: write a list"
    raise QueryError(label, f"{option}={shown(names)} does not name columns", hint)


def keys_of(label: str, stream: Stream, option: str, names: Names) -> tuple[str, ...]:
    """Return the names of the columns to group by, after checking them."""
    keys = names_of(label, option, names)
    check_columns(label, stream.schema, keys)
    check_unique(label, keys)
    if stream.timed and TS in keys:
        raise QueryError(
            label,
            "ts cannot be a key",
            "windows group by time already; to group by ts itself copy it first: .map(when=pl.col('ts'))",
        )
    check_keys(label, keys, stream.schema)
    return keys


def check_unique(label: str, names: Sequence[str], what: str = "column") -> None:
    """Refuse a name that appears twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise QueryError(label, f"the {what} {name!r} appears twice", "give one of them another name")
        seen.add(name)


def check_timed(label: str, stream: Stream) -> None:
    """Refuse a stream without time: a stateful step needs an order."""
    if not stream.timed:
        raise QueryError(
            label,
            f"{label_of(stream)} has no time",
            "give its source a ts=; rows of .late and .rejected have no time, so only stateless steps can follow them",
        )


def check_window(label: str, window: Window) -> None:
    """Refuse what is not a window, and a window that can hold nothing."""
    if not isinstance(window, Window):
        hint = "write for example window=st.tumbling('1m'), or use st.sliding, st.last_n or st.session"
        raise QueryError(label, f"{shown(window)} is not a window", hint)
    window.check(label)
