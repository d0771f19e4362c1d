"""What must be in a text that people read, so that the wording can improve: the step, the kind of problem, the figures, the hint."""

from __future__ import annotations


def says(text: object, *parts: str) -> bool:
    """Return whether a text has these parts, one after the other, whatever stands between them.

    >>> says("step a (map): there is no column 'x'; did you mean 'y'?", "step a", "no column 'x'", "'y'")
    True
    >>> says("7 of 8", "8", "7")
    False
    """
    at, whole = 0, str(text)
    for part in parts:
        found = whole.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True
