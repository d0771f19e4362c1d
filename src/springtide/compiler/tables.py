"""Columns of text for people: aligned and wrapped, nothing else."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

GAP = "  "


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), width: int | None = None) -> list[str]:
    """Return rows as lines with aligned cells, those of columns in `right` to the right. The last column is wrapped at `width`, below itself.

    >>> columns([["name", "n"], ["x", "1,000"]], right=[1])
    ['name      n', 'x     1,000']
    """
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        *cells, last = [cell.rjust(wide[i]) if i in right else cell.ljust(wide[i]) for i, cell in enumerate(row)]
        start = GAP.join(cells) + (GAP if cells else "")
        lines += _wrap(start, last.rstrip(), width)
    return lines


def _wrap(start: str, last: str, width: int | None) -> list[str]:
    if width is None or len(start) + len(last) <= width:
        return [(start + last).rstrip()]
    return textwrap.wrap(
        last,
        width=max(width, len(start) + 20),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
