"""Numbers of things in words."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """Count things.

    >>> plural(1, "row"), plural(2_000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
