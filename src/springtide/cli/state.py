"""`springtide state`: what the stateful steps of a query remember."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import polars as pl
import typer

from springtide.cli.errors import CommandError
from springtide.cli.formatting import event_time
from springtide.cli.show import show
from springtide.cli.status import CheckpointPath
from springtide.cli.tables import table_of
from springtide.compiler.tables import columns
from springtide.operators.sliding.operator import CLOSED
from springtide.query.errors import nearest
from springtide.query.plurals import plural
from springtide.query.types import END_OF_TIME
from springtide.runtime.state_reader import (
    first_pane,
    latest,
    main_segments,
    pane_width,
    readable,
    rows_of,
    tables_of,
    with_keys,
)
from springtide.state.forms import StateDescription
from springtide.state.from_outside import from_outside
from springtide.state.manifest import Manifest, SubqueryState


def state(
    ckpt: CheckpointPath,
    step: Annotated[
        str | None, typer.Argument(metavar="[STEP]", help="A stateful step; by default all of them.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="[COLUMN=]VALUE", help="Only rows with this value as a key. Repeatable."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Which kind of rows, where the step keeps several.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many rows.")] = 20,
) -> None:
    """Show what the stateful steps of a query remember.

    Without STEP a line for each of them; with STEP the rows of its state: for a windowed aggregate the partial results per key and pane, for a
    join the tuples of each side, for an operator the state of each key.
    """
    checkpoint = from_outside(ckpt)
    identity = checkpoint.identity()
    manifest = latest(checkpoint)
    descriptions: Mapping[str, StateDescription] = identity.get("state", {})
    if step is None:
        if key:
            raise CommandError(f"--key needs a step; {nearest('', manifest.state)}")
        show(f"query {identity['query']}, state after epoch {manifest.epoch:,}\n\n{_overview(manifest, descriptions)}")
        return
    if step not in manifest.state:
        raise CommandError(f"{step!r} is not a stateful step of {identity['query']}; {nearest(step, manifest.state)}")
    description = descriptions.get(step, {})
    manifest, rows = rows_of(checkpoint, step, description, kind)
    rows = rows.filter(with_keys(key or [], description.get("keys", [])))
    shown = readable(rows, description).head(limit).collect()
    found = rows.select(pl.len()).collect().item()
    of = "" if found <= limit else f", the first {limit}"
    kinds = tables_of(manifest.state[step], description)
    which = f", {kind or kinds[0]} (of {', '.join(kinds)})" if len(kinds) > 1 else ""
    show(f"{step} after epoch {manifest.epoch:,}{which}: {plural(found, 'row')}{of}")
    if shown.height:
        show("\n" + "\n".join(table_of(shown)))


def _overview(manifest: Manifest, descriptions: Mapping[str, StateDescription]) -> str:
    rows = [["step", "keys", "instances", "segments", "rows", "oldest pane", "newest pane", "closed up to"]]
    for name, state in manifest.state.items():
        description = descriptions.get(name, {})
        segments = main_segments(state, description)
        first = first_pane(state, description)
        oldest = min((s.low for s in segments), default=None)
        rows.append(
            [
                name,
                ", ".join(description.get("keys", [])) or "–",
                str(manifest.maps[name].instances),
                str(len(segments)),
                f"{sum(s.rows for s in segments):,}",
                _pane_time(oldest if first is None or oldest is None else max(oldest, first), description),
                _pane_time(max((s.high for s in segments), default=None), description),
                _closed(state, description),
            ]
        )
    return "\n".join(columns(rows, right=[2, 3, 4]))


def _pane_time(pane: int | None, description: StateDescription) -> str:
    width = pane_width(description)
    return "–" if pane is None or width is None else event_time(pane * width)


def _closed(state: SubqueryState, description: StateDescription) -> str:
    closed = state.marks.get(CLOSED)
    if closed is None or "size" not in description:
        return "–"
    if closed == END_OF_TIME:
        return "the end"
    return event_time(closed * description["every"] + description["size"])
