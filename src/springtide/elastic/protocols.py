"""How a bucket moves from its old owner to its new one (SC-9). Pure.

virtual   nothing moves: state is where all instances can read it, and the new owner reads it there. The default.
state     state recreation: in the epoch of the change, the new owner copies the state of its buckets into its own segments
window    window recreation: both owners get the tuples; the old one finishes the windows that have begun, the new one starts with the
          next. No state is moved, and the change takes as long as a window
"""

from __future__ import annotations

from typing import Literal, get_args

from springtide.query.errors import QueryError, nearest, shown

Protocol = Literal["virtual", "state", "window"]
ProtocolChoice = Literal["virtual", "state", "window", "rule"]


def check_protocol(choice: object) -> None:
    """Refuse anything that is not a protocol."""
    if choice not in get_args(ProtocolChoice):
        raise QueryError("(protocol)", f"{shown(choice)} is unknown", nearest(str(choice), get_args(ProtocolChoice)))


def choose(
    choice: ProtocolChoice, *, shared: bool, windowed: bool, moving: float | None = None, filling: float | None = None
) -> Protocol:
    """Choose by the rule of section VI-C.1 of the StreamCloud paper, unless a specific protocol is requested.

    State is recreated, unless moving it takes longer than filling a window (`moving` and `filling` in seconds). If state is in a shared
    store, there is nothing to move. Only windows of time can be recreated; other state is copied.

    >>> choose("rule", shared=True, windowed=True), choose("rule", shared=False, windowed=True, moving=9.0, filling=5.0)
    ('virtual', 'window')
    >>> choose("window", shared=True, windowed=False)
    'state'
    """
    if choice == "rule":
        if shared:
            return "virtual"
        slow = moving is not None and filling is not None and moving > filling
        return "window" if windowed and slow else "state"
    return "state" if choice == "window" and not windowed else choice
