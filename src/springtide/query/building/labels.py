"""What an error message calls a stream and the step that is being built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from springtide.query import steps
from springtide.query.names import check_name

if TYPE_CHECKING:
    from springtide.query.stream import Stream


def label_of(stream: Stream) -> str:
    """Return what to call a stream: the name of its step, followed by the output unless that is the main one.

    >>> label_of(calls), label_of(calls.late)
    ('calls', 'calls.late')
    """
    name = stream.step.name or stream.step.kind
    return name if stream.port == steps.OUT else f"{name}.{stream.port}"


def label_after(stream: Stream, kind: str, name: str | None) -> str:
    """Return what to call the step that is to follow a stream; refuse a name that cannot be used.

    >>> label_after(calls, "filter", None), label_after(calls, "filter", "long")
    ('filter after calls', 'long (filter)')
    """
    if name is None:
        return f"{kind} after {label_of(stream)}"
    check_name(kind, name)
    return f"{name} ({kind})"
