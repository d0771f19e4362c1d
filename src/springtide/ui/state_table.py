"""What the steps of a query remember, as a table for the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Any

import polars as pl

from springtide.query.errors import SpringtideError, nearest
from springtide.runtime.state_reader import latest, readable, rows_of, tables_of, with_keys
from springtide.state.checkpoint import Checkpoint

_LONGEST = 200
"""Characters of a value that are shown."""


def browse(checkpoint: Checkpoint, step: str, keys: Sequence[str], kind: str | None, limit: int) -> dict[str, Any]:
    """Return rows of the state of a step: those with these keys (`column=value`), at most so many."""
    identity, manifest = checkpoint.identity(), latest(checkpoint)
    if step not in manifest.state:
        raise SpringtideError(f"{step!r} is not a stateful step; {nearest(step, manifest.state)}")
    description = identity.get("state", {}).get(step, {})
    manifest, rows = rows_of(checkpoint, step, description, kind)
    rows = rows.filter(with_keys(keys, description.get("keys", [])))
    shown = readable(rows, description).head(limit).collect()
    kinds = tables_of(manifest.state[step], description)
    return {
        "step": step,
        "epoch": manifest.epoch,
        "keys": list(description.get("keys", [])),
        "kinds": kinds,
        "kind": kind or next(iter(kinds), None),
        "found": rows.select(pl.len()).collect().item(),
        "columns": [{"name": name, "right": dtype.is_numeric()} for name, dtype in shown.schema.items()],
        "rows": [[cell(value) for value in row] for row in shown.rows()],
    }


def cell(value: object) -> str | None:
    """Write a value for a table; None stays None, and is shown as such.

    >>> cell(1.5), cell("x" * 300)[-3:], cell(None), cell(b"\\x00\\xff")
    ('1.5', 'xx…', None, '00ff')
    """
    if value is None:
        return None
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
    elif isinstance(value, date | time):
        text = value.isoformat()
    elif isinstance(value, bytes):
        text = value.hex()
    elif isinstance(value, list):
        text = ", ".join(cell(held) or "null" for held in value[:_LONGEST])
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
