"""Two results side by side: do they have the same rows, in any order? If not, where do they differ?"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import polars as pl

from springtide.query.types import type_text
from springtide.runtime.reference.values import content_key, plain_rows

SHOWN = 5
"""How many rows of each kind are shown."""
_SEARCHED = 200


class Row(NamedTuple):
    """A row of a result: plain values to compare, and the row as people see it."""

    plain: list[Any]
    seen: tuple[Any, ...]


def difference(actual: pl.DataFrame, expected: pl.DataFrame, tolerance: float) -> str | None:
    """Return how two results differ as multisets of rows, or None.

    >>> print(difference(pl.DataFrame({"k": ["a", "b"], "n": [1, 2]}), pl.DataFrame({"k": ["b", "a"], "n": [3, 1]}), 0))
    1 row changed, 0 missing, 0 extra (2 given, 2 expected)
    changed:
      expected  k=b  n=3
      given     k=b  n=2
    """
    if actual.schema != expected.schema:
        return _schemas(actual.schema, expected.schema)
    extra, missing = _unmatched(_rows(actual), _rows(expected), tolerance)
    if not extra and not missing:
        return None
    changed = _pair_up(extra, missing)
    rows = "row" if len(changed) == 1 else "rows"
    lines = [
        f"{len(changed)} {rows} changed, {len(missing)} missing, {len(extra)} extra"
        f" ({actual.height} given, {expected.height} expected)"
    ]
    if changed:
        lines.append("changed:")
        for was, now in changed[:SHOWN]:
            lines += [f"  expected  {_line(actual, was)}", f"  given     {_line(actual, now)}"]
    for title, rest in (("missing:", missing), ("extra:", extra)):
        if rest:
            lines += [title, *(f"  {_line(actual, row)}" for row in rest[:SHOWN])]
    return "\n".join(lines)


def _rows(frame: pl.DataFrame) -> list[Row]:
    rows = zip(plain_rows(frame), frame.iter_rows(), strict=True)
    return [Row(list(plain.values()), seen) for plain, seen in sorted(rows, key=lambda row: content_key(row[0]))]


def _unmatched(actual: list[Row], expected: list[Row], tolerance: float) -> tuple[list[Row], list[Row]]:
    """Return what is left without the rows that both have: equal rows go first, then rows that are equal up to the rounding of floats."""
    same = Counter(repr(row.plain) for row in actual) & Counter(repr(row.plain) for row in expected)
    extra, missing = _without(actual, same), _without(expected, same)
    candidates: dict[str, list[Row]] = {}
    for row in missing:
        candidates.setdefault(_without_floats(row.plain), []).append(row)
    unmatched = []
    for row in extra:
        near = candidates.get(_without_floats(row.plain), [])
        match = next((i for i, other in enumerate(near) if _close(row.plain, other.plain, tolerance)), None)
        if match is None:
            unmatched.append(row)
        else:
            del near[match]
    left = {id(row) for rows in candidates.values() for row in rows}
    return unmatched, [row for row in missing if id(row) in left]


def _without(rows: list[Row], same: Counter[str]) -> list[Row]:
    left, rest = same.copy(), []
    for row in rows:
        if left[repr(row.plain)] > 0:
            left[repr(row.plain)] -= 1
        else:
            rest.append(row)
    return rest


def _without_floats(value: Any) -> str:
    if isinstance(value, float):
        return "~"
    if isinstance(value, list):
        return f"[{', '.join(map(_without_floats, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(map(_without_floats, value.values()))}}}"
    return repr(value)


def _close(a: Any, b: Any, tolerance: float) -> bool:
    """Return whether floats are close to each other and everything else is equal; the tolerance is absolute below 1."""
    if isinstance(a, float) and isinstance(b, float):
        near = abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)) if math.isfinite(a) and math.isfinite(b) else a == b
        return near or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_close(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return _close(list(a.values()), list(b.values()), tolerance)
    return bool(a == b)


def _pair_up(extra: list[Row], missing: list[Row]) -> list[tuple[Row, Row]]:
    """Remove from both lists, and return in pairs, rows that agree in at least half of their columns, matching the most similar ones first."""

    def alike(was: Row, now: Row) -> int:
        return sum(repr(a) == repr(b) for a, b in zip(was.plain, now.plain, strict=True))

    pairs = [
        (alike(was, now), -i, -j)
        for i, was in enumerate(missing[:_SEARCHED])
        for j, now in enumerate(extra[:_SEARCHED])
        if 2 * alike(was, now) >= len(was.plain)
    ]
    taken: dict[int, int] = {}
    for _, i, j in sorted(pairs, reverse=True):
        if -i not in taken and -j not in taken.values():
            taken[-i] = -j
    changed = [(missing[i], extra[j]) for i, j in sorted(taken.items())]
    missing[:] = [row for i, row in enumerate(missing) if i not in taken]
    extra[:] = [row for j, row in enumerate(extra) if j not in taken.values()]
    return changed


def _line(frame: pl.DataFrame, row: Row) -> str:
    return "  ".join(f"{name}={value}" for name, value in zip(frame.columns, row.seen, strict=True))


def _schemas(actual: pl.Schema, expected: pl.Schema) -> str:
    lines = ["the columns differ"]
    for name in [*expected, *(n for n in actual if n not in expected)]:
        given, wanted = actual.get(name), expected.get(name)
        if given is None or wanted is None:
            lines.append(f"  {name!r} is {'missing' if given is None else 'extra'}")
        elif given != wanted:
            lines.append(f"  {name!r} is {type_text(given)}, expected {type_text(wanted)}")
    if len(lines) == 1:
        lines.append(f"  the order is {', '.join(actual)}; expected {', '.join(expected)}")
    return "\n".join(lines)
