"""How a bucket goes from its old owner to its new one (SC-9). Pure.

virtual   nothing moves: state is where everybody can read it, and the new owner reads it there. The default.
state     state recreation: in the epoch of the change the new owner copies the state of its buckets into segments of its own
window    window recreation: both owners get the tuples; the old one finishes the windows that have begun, the new one begins with the
          next. No state changes hands, and the change takes as long as a window
"""

from __future__ import annotations

from typing import Literal, get_args

from springtide.query.errors import QueryError, nearest, shown

Protocol = Literal["virtual", "state", "window"]
Wish = Literal["virtual", "state", "window", "rule"]


def check_protocol(wish: object) -> None:
    """Refuse what is no protocol."""
    if wish not in get_args(Wish):
        raise QueryError("(protocol)", f"{shown(wish)} is unknown", nearest(str(wish), get_args(Wish)))


def choose(
    wish: Wish, *, shared: bool, windowed: bool, moving: float | None = None, filling: float | None = None
) -> Protocol:
    """Choose by the rule of section VI-C.1 of the StreamCloud paper, unless somebody wishes for one.

    State is recreated, unless moving it takes longer than filling a window (`moving` and `filling` in seconds). Where state is in a
    store that all share there is nothing to move. Only windows of time can be recreated; other state is copied.

    >>> choose("rule", shared=True, windowed=True), choose("rule", shared=False, windowed=True, moving=9.0, filling=5.0)
    ('virtual', 'window')
    >>> choose("window", shared=True, windowed=False)
    'state'
    """
    if wish == "rule":
        if shared:
            return "virtual"
        slow = moving is not None and filling is not None and moving > filling
        return "window" if windowed and slow else "state"
    return "state" if wish == "window" and not windowed else wish
