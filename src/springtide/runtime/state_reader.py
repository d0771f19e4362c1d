"""The rows of state in a checkpoint, made readable, using what the checkpoint says about each step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from springtide.exchange.hashing import BUCKET, HASH
from springtide.operators.aggregates.partials import ROWS
from springtide.operators.aggregates.sums import shown_sums
from springtide.operators.sliding.kernel import PANE
from springtide.operators.sliding.operator import CLOSED
from springtide.operators.tables import ALIVE, VERSION
from springtide.query.errors import SpringtideError, nearest
from springtide.query.types import END_OF_TIME, TIME
from springtide.state import private
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.forms import StateDescription
from springtide.state.manifest import Manifest, SubqueryState
from springtide.state.segment import Segment, read_segment
from springtide.state.tiers import Tiers

_PARTS = {"s": "sum", "n": "count", "m": "mean", "q": "squares"}
_TRIES = 5
_ENDS = ("first ts", "last ts")
"""What the times of a window's first and last tuple are called."""


def latest(checkpoint: Checkpoint) -> Manifest:
    """Read the newest manifest; there must be one."""
    manifest = checkpoint.latest()
    if manifest is None:
        raise SpringtideError(f"checkpoint {checkpoint.root} has no state yet: no epoch is committed")
    return manifest


def tables_of(state: SubqueryState, description: StateDescription) -> list[str]:
    """Return the tables of a step's state that people are shown, the most interesting first."""
    there = dict.fromkeys(s.kind for s in state.segments)
    if "tables" in description:
        return [table for table in description["tables"] if table in there]
    derived = [
        table for table in there if table == "totals" or table.startswith("blocks")
    ]  # older checkpoints do not say
    return sorted(there.keys() - derived, key=lambda table: (table.startswith("held"), table))


def rows_of(
    checkpoint: Checkpoint, step: str, description: StateDescription, kind: str | None = None
) -> tuple[Manifest, pl.LazyFrame]:
    """Map the rows of a kind in the state of a step; if a running query removes a segment meanwhile, look again."""
    for tries in range(1, _TRIES + 1):
        manifest = latest(checkpoint)
        try:
            return manifest, _map(checkpoint, manifest, step, description, kind)
        except CheckpointError:
            if tries == _TRIES or not checkpoint.in_use():
                raise
    raise AssertionError


def _map(
    checkpoint: Checkpoint, manifest: Manifest, step: str, description: StateDescription, kind: str | None
) -> pl.LazyFrame:
    state = manifest.state[step]
    kinds = tables_of(state, description)
    if kind is not None and kind not in kinds:
        raise SpringtideError(f"{step} has no {kind!r} in its state; {nearest(kind, kinds)}")
    wanted = kind or next(iter(kinds), None)
    memory = private.left(manifest.log and manifest.log.shared_memory, checkpoint.root)
    tiers = Tiers(str(checkpoint.root), memory, checkpoint.remote)
    frames = [
        read_segment(
            tiers.find(s) if tiers.backup is not None else next(iter(tiers.copies(s)), checkpoint.root / s.file)
        )
        .lazy()
        .with_columns(epoch=pl.lit(s.epoch, dtype=pl.Int64))
        for s in main_segments(state, description)
        if s.kind == wanted
    ]
    if not frames:
        return pl.LazyFrame(schema={BUCKET: pl.UInt16, "epoch": pl.Int64, "instance": pl.Int32})
    owners = pl.lit(pl.Series(manifest.maps[step].owners, dtype=pl.Int32))
    rows = _newest(pl.concat(frames), description).with_columns(instance=owners.gather(pl.col(BUCKET)))
    first = first_pane(state, description)
    return rows if first is None or PANE not in rows.collect_schema() else rows.filter(pl.col(PANE) >= first)


def _newest(rows: pl.LazyFrame, description: StateDescription) -> pl.LazyFrame:
    """Leave out outdated versions of keys, and keys of which nothing is left."""
    schema = rows.collect_schema()
    if VERSION not in schema:
        return rows
    keys = [c for c in (BUCKET, HASH, *description.get("keys", ())) if c in schema]
    rows = rows.filter(pl.col(VERSION) == pl.col(VERSION).max().over(keys))
    return rows.filter(pl.col(ALIVE)) if ALIVE in schema else rows


def main_segments(state: SubqueryState, description: StateDescription) -> list[Segment]:
    """Return the segments without what can be worked out from the rest, such as running totals."""
    shown = tables_of(state, description)
    return [s for s in state.segments if s.kind in shown]


def pane_width(description: StateDescription) -> int | None:
    """Return the length of a pane in microseconds, if a step has panes."""
    return math.gcd(description["size"], description["every"]) if "size" in description else None


def first_pane(state: SubqueryState, description: StateDescription) -> int | None:
    """Return the first pane of a window that is still open: earlier ones only wait to be cleaned up."""
    width = pane_width(description)
    closed = state.marks.get(CLOSED)
    if width is None or closed is None:
        return None
    return END_OF_TIME if closed == END_OF_TIME else (closed + 1) * (description["every"] // width)


def with_keys(given: Sequence[str], keys: Sequence[str]) -> pl.Expr:
    """Return which rows have the given values as keys."""
    wanted = pl.lit(True)
    for text in given:
        column, equals, value = text.partition("=")
        if equals and column in keys:
            wanted &= _is(column, value)
        elif len(keys) == 1:
            wanted &= _is(keys[0], text)
        elif not keys:
            raise SpringtideError("this step has no keys; leave --key out")
        else:
            raise SpringtideError(f"this step has several keys; say which one {text!r} is: --key {keys[0]}={text}")
    return wanted


def _is(column: str, value: str) -> pl.Expr:
    return pl.col(column).is_null() if value == "null" else pl.col(column).cast(pl.String) == value


def readable(rows: pl.LazyFrame, description: StateDescription) -> pl.LazyFrame:
    """Name and order the columns for people: keys, the pane as a time, partial results, who has them."""
    schema = rows.collect_schema()
    keys = [k for k in description.get("keys", []) if k in schema]
    width = pane_width(description)
    own = (PANE, ROWS, BUCKET, "epoch", "instance")
    sums = shown_sums([c for c in schema if c not in keys])
    rows = rows.with_columns([value.alias(name) for name, (_, value) in sums.items()])
    rows = rows.drop([c for columns, _ in sums.values() for c in columns])
    schema = rows.collect_schema()
    parts = [c for c in schema if c not in (*keys, *own) and not c.startswith("__")]
    parts.sort(key=lambda c: (int(n) if (n := c.partition(".")[0]).isdigit() else len(parts), c not in sums))
    pane = (
        []
        if PANE not in schema
        else [(pl.col(PANE) * width).cast(TIME).alias("pane") if width else pl.col(PANE).alias("pane")]
    )
    names = _part_names(parts, description.get("aggregates", []))
    values = [_value(c, schema[c]).alias(names[c]) for c in parts]
    ordered = rows.sort([*keys, *(c for c in (PANE, "epoch") if c in schema)], nulls_last=False)
    return ordered.select(*keys, *pane, *values, pl.col(BUCKET).alias("bucket"), "instance", "epoch")


def _part_names(parts: list[str], aggregates: list[str]) -> dict[str, str]:
    """Turn `0.s` into the name that the user gave: `avg.sum`, or only `avg` if it is the only part."""
    numbers = [part.partition(".")[0] for part in parts]
    names = {}
    for part, number in zip(parts, numbers, strict=True):
        kind = part.partition(".")[2]
        if not number.isdigit() or not aggregates:
            names[part] = kind or part
        elif int(number) >= len(aggregates):  # a window of tuples also keeps when its first and last ones were
            names[part] = (*_ENDS, part)[min(int(number) - len(aggregates), len(_ENDS))]
        else:
            name = aggregates[int(number)]
            names[part] = name if numbers.count(number) == 1 or not kind else f"{name}.{_PARTS.get(kind, kind)}"
    return names


def _value(column: str, dtype: pl.DataType) -> pl.Expr:
    """Leave a value's place in the total order out."""
    if isinstance(dtype, pl.Struct) and "value" in [f.name for f in dtype.fields]:
        return pl.col(column).struct.field("value")
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct):
        return pl.col(column).list.eval(pl.element().struct.field("value"))
    return pl.col(column)
