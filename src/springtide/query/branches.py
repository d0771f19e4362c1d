"""The outputs of a split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from springtide.query.errors import QueryError, nearest, shown

if TYPE_CHECKING:
    from springtide.query.stream import Stream


class Branches:
    """The outputs of a split: by name, as attributes, or unpacked in order.

    >>> parts = calls.split(short=pl.col("duration") < 60, rest="other")
    >>> parts["short"] is parts.short, parts.names
    (True, ('short', 'other'))
    """

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        """Keep the streams in order."""
        self._streams = dict(streams)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(self._streams)

    def __getitem__(self, port: str) -> Stream:
        """Return the output with that name."""
        if not isinstance(port, str) or port not in self._streams:
            raise QueryError("(split)", f"there is no output {shown(port)}", nearest(str(port), self._streams))
        return self._streams[port]

    def __getattr__(self, port: str) -> Stream:
        """Return the output with that name."""
        streams: dict[str, Stream] = self.__dict__.get("_streams", {})
        if port not in streams:
            raise AttributeError(f"the split has no output {port!r}; {nearest(port, streams)}")
        return streams[port]

    def __iter__(self) -> Iterator[Stream]:
        """Return the streams in order, so that a split can be unpacked."""
        return iter(self._streams.values())
