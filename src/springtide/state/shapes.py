"""What JSON must look like before anything is done with it: a check for each part, put together to one for the whole.

    SEGMENT = record(file=path("state"), rows=whole())
    SEGMENT("segment", {"file": "../etc/passwd", "rows": 7})         ValueError: segment.file is not a file below state

A manifest may be damaged or forged: what it says is checked when it is read, and nowhere else. Members that a check does not name pass: a
newer version may have more of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

Check = Callable[[str, Any], None]
"""Called with the name of a part and the part; raises a ValueError if it is wrong."""

_FILE = re.compile(r"[^\s./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*")
"""A name that Springtide gives to a file or folder; none begins with a dot."""
LONGEST = 255


def _require(fits: bool, where: str, what: str) -> None:
    if not fits:
        raise ValueError(f"{where} is not {what}")


def anything(where: str, value: Any) -> None:
    """Accept anything."""


def whole(least: int = 0, most: int = 2**63 - 1) -> Check:
    """Accept a whole number within limits."""

    def check(where: str, value: Any) -> None:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        _require(fits, where, f"a whole number from {least} to {most}")

    return check


SIGNED = whole(-(2**63))
"""A time, or whatever else has 64 bits."""


def number(where: str, value: Any) -> None:
    """Accept a finite number."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    _require(fits and abs(value) < 2**63 and math.isfinite(value), where, "a number")


def flag(where: str, value: Any) -> None:
    """Accept true or false."""
    _require(isinstance(value, bool), where, "true or false")


def text(where: str, value: Any) -> None:
    """Accept a string."""
    _require(isinstance(value, str), where, "a text")


def one_of(words: Sequence[str]) -> Check:
    """Accept one of these words."""

    def check(where: str, value: Any) -> None:
        _require(isinstance(value, str) and value in words, where, f"one of {', '.join(words)}")

    return check


def path(folder: str) -> Check:
    """Accept the path of a file two levels below one of our folders, such as `state/counts/7.arrow`: it cannot lead anywhere else.

    >>> path("state")("file", "state/counts/000000007-0-panes-1f.arrow")
    >>> path("state")("file", "state/../../secrets")
    Traceback (most recent call last):
    ValueError: file is not a file below state
    """

    def check(where: str, value: Any) -> None:
        parts = value.split("/") if isinstance(value, str) else []
        fits = len(parts) == 3 and parts[0] == folder
        fits = fits and all(_FILE.fullmatch(p) and len(p.encode(errors="replace")) <= LONGEST for p in parts)
        _require(fits, where, f"a file below {folder}")

    return check


def maybe(check: Check) -> Check:
    """Accept what a check accepts, or null."""

    def optional(where: str, value: Any) -> None:
        if value is not None:
            check(where, value)

    return optional


def listed(check: Check) -> Check:
    """Accept a list of what a check accepts."""

    def all_of(where: str, value: Any) -> None:
        _require(isinstance(value, list), where, "a list")
        for place, item in enumerate(value):
            check(f"{where}[{place}]", item)

    return all_of


def names(where: str, value: Any) -> None:
    """Accept a list of names, each once."""
    listed(text)(where, value)
    _require(len(set(value)) == len(value), where, "a list of names that are all different")


def row(*checks: Check, more: Sequence[Check] = ()) -> Check:
    """Accept a list with one member for each check; those of `more` may be missing at the end."""

    def check(where: str, value: Any) -> None:
        fits = isinstance(value, list) and len(checks) <= len(value) <= len(checks) + len(more)
        _require(fits, where, f"a list of {len(checks)}")
        for place, (member, item) in enumerate(zip((*checks, *more), value, strict=False)):
            member(f"{where}[{place}]", item)

    return check


def each(check: Check) -> Check:
    """Accept an object whose values a check accepts."""

    def all_of(where: str, value: Any) -> None:
        _require(isinstance(value, dict), where, "a list of names")
        for name, item in value.items():
            check(f"{where}.{name}", item)

    return all_of


def record(**members: Check) -> Check:
    """Accept an object that has these members; those marked with `may` are optional."""

    def check(where: str, value: Any) -> None:
        _require(isinstance(value, dict), where, "an object")
        for name, member in members.items():
            if name in value:
                member(f"{where}.{name}", value[name])
            elif not isinstance(member, _May):
                raise ValueError(f"{where} has no {name}")

    return check


Kept = TypeVar("Kept")


def known(made: type[Kept], members: Mapping[str, Any]) -> Kept:
    """Make a dataclass from the members that it knows; a newer version may have written more."""
    names = {field.name for field in fields(made)}  # type: ignore[arg-type]
    return made(**{name: value for name, value in members.items() if name in names})


class _May:
    def __init__(self, check: Check) -> None:
        self._check = check

    def __call__(self, where: str, value: Any) -> None:
        self._check(where, value)


def may(check: Check) -> Check:
    """Mark an optional member."""
    return _May(check)
