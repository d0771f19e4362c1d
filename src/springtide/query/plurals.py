"""Numbers of things in words."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """Count things.

    >>> plural(1, "row"), plural(2_000, "row")
    ('1 row', '2,000 rows')
    >>> plural(2, "summary"), plural(2, "key")
    ('2 summaries', '2 keys')
    """
    if number == 1:
        return f"1 {noun}"
    several = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{number:,} {several}"
