"""Tables as notebooks show them: plain HTML that reads well on light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import polars as pl

from springtide.query.types import type_text

_CELL = "padding:.15em .8em .15em 0;text-align:left;white-space:nowrap"
_LONGEST = 60


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> str:
    """Return a table; everything in it is text.

    >>> table(["step"], [["<b>"]])
    '<table style="..."><thead>...<td style="...">&lt;b&gt;</td></tr></tbody></table>'
    """
    caption = (
        f'<caption style="text-align:left;padding:.3em 0;font-weight:600">{escape(title)}</caption>' if title else ""
    )
    header_cells = "".join(f'<th style="{_CELL};font-weight:600">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    style = "border-collapse:collapse;margin:.3em 0;font-variant-numeric:tabular-nums"
    return f'<table style="{style}">{caption}<thead><tr>{header_cells}</tr></thead><tbody>{body}</tbody></table>'


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f'<td style="{_CELL}">{escape(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")}</td>'


def columns_table(schema: pl.Schema) -> str:
    """Return the columns of a stream as a table: names above, types below."""
    return table(list(schema), [[type_text(dtype) for dtype in schema.values()]], title="columns")


def frame_table(rows: pl.DataFrame) -> str:
    """Return a few rows as a table."""
    return table(rows.columns, rows.iter_rows())


def note(text: str) -> str:
    """Return a remark."""
    return f'<div style="opacity:.7;font-size:90%">{escape(text)}</div>'
