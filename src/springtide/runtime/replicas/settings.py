"""The user's settings for a replica."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from springtide.query.errors import QueryError
from springtide.query.types import Length, micros_of
from springtide.query.usage import usage_of
from springtide.state.stores import Store

AFTER = "1s"
_WHERE = "(replicas)"


@usage_of("st.Replicated('group/', name='a')", "(replicated)")
@dataclass(frozen=True)
class Replicated:
    """One of several replicas of a query, which share a group: the log of what each epoch reads, and of who publishes it.

    >>> st.Replicated("s3://bucket/calls-group", name="a")
    Replicated(group='s3://bucket/calls-group', name='a', after='1s')
    """

    group: str | Path | Store
    """A folder that all replicas see, or an address in an object store; it is created when the first one starts."""
    name: str
    """The name of this replica; no two replicas of a group have the same name."""
    after: Length = AFTER
    """How long a replica may take to bring the rows of an epoch to the sinks before another does it instead. A wrong guess does no harm."""

    def __post_init__(self) -> None:
        """Refuse settings that make no sense."""
        if not isinstance(self.name, str) or not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise QueryError(
                _WHERE, f"name={self.name!r} cannot be the name of a replica", "use letters, digits, - and _"
            )
        if not micros_of(_WHERE, self.after, "after") >= 10_000:
            raise QueryError(_WHERE, f"after={self.after!r} is too short", 'give at least "10ms"; "1s" is usual')

    @property
    def seconds(self) -> float:
        """`after`, in seconds."""
        return micros_of(_WHERE, self.after, "after") / 1e6

    @property
    def store(self) -> Store:
        """Where the group is."""
        return Store.at(self.group)

    def opened(self, options: Mapping[str, Any] | None) -> Replicated:
        """Return the same settings, with the address and its credentials combined."""
        return replace(self, group=Store.at(self.group, None if Store.at(self.group).local is not None else options))
