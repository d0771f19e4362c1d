"""`springtide status`: how far the query of a checkpoint is, whether it runs or not."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated

import typer

from springtide.cli.formatting import clock, count, event_time, seconds, size
from springtide.cli.show import show
from springtide.compiler.tables import columns
from springtide.query.plurals import plural
from springtide.query.types import END_OF_TIME
from springtide.state.from_outside import from_outside
from springtide.state.manifest import Manifest, SourceState, SubqueryState

CheckpointPath = Annotated[
    str, typer.Argument(metavar="CKPT", help="The checkpoint of a query: its folder, or its address (s3://…).")
]
_DAY = 86_400


def status(ckpt: CheckpointPath) -> None:
    """Show how far a query has come: rows, instances, state."""
    checkpoint = from_outside(ckpt)
    identity = checkpoint.identity()
    name = identity["query"]
    running, manifest = checkpoint.in_use(), checkpoint.latest()
    if manifest is None:
        show(f"query {name}, {'running' if running else 'not running'}: no epoch is committed yet")
        return
    how = "running" if running else "ended with its input" if manifest.ended else "stopped"
    show(
        "\n\n".join(
            [
                f"query {name}, {how}",
                _epoch(manifest, time.time()),
                _sources(manifest),
                _parts(manifest, identity.get("state", {})),
            ]
        )
    )


def ago(at: float, now: float) -> str:
    """Return how long ago something was.

    >>> ago(100, 103.2), ago(100, 100 + 90_000)
    ('3.20 s ago', '25:00:00 ago')
    """
    return f"{seconds(max(now - at, 0))} ago"


def _epoch(manifest: Manifest, now: float) -> str:
    metrics = manifest.metrics
    at = metrics.at
    day = f"{time.strftime('%F', time.localtime(at))} " if now - at > _DAY else ""
    lines = [
        ("last epoch", f"{manifest.epoch:,}, committed at {day}{clock(at)} ({ago(at, now)})"),
        ("took", seconds(metrics.seconds)),
        ("rows", f"{count(metrics.rows)} in, {count(metrics.published)} out"),
        ("backlog", plural(metrics.backlog, "row")),
    ]
    return "\n".join(columns(lines))


def _sources(manifest: Manifest) -> str:
    head = ["source", "accepted", "late", "rejected", "streams", "time"]
    table = columns([head, *(_source(n, s) for n, s in manifest.sources.items())], right=range(1, 5))
    return "\n".join([*table, *(_files(n, s.files) for n, s in manifest.sources.items() if any(s.files.values()))])


def _files(name: str, files: dict[str, int]) -> str:
    """Return how many files were read, and which of them, or of others, people may want to look after."""
    done = plural(files["read"] + files["changed"], "file")
    odd = [f"{count(files['changed'])} changed since"] if files["changed"] else []
    odd += [f"{count(files['gone'])} gone unread"] if files["gone"] else []
    return f"{name}: {', '.join([f'{done} read', *odd])}"


def _source(name: str, state: SourceState) -> list[str]:
    earliest = min(state.times.values(), default=None)
    time = "ended" if state.ended or earliest == END_OF_TIME else "–" if earliest is None else event_time(earliest)
    return [name, count(state.accepted), count(state.late), count(state.rejected), str(len(state.times)), time]


def _parts(manifest: Manifest, known: Iterable[str]) -> str:
    rows = [["subquery", "instances", "buckets", "segments", "state rows", "state"]]
    stateless = [name for name in manifest.maps if name not in manifest.state]
    for name in dict.fromkeys([*stateless, *(n for n in known if n in manifest.maps), *manifest.maps]):
        bucket_map = manifest.maps[name]
        rows.append([name, str(bucket_map.instances), *_state(manifest.state.get(name), len(bucket_map.owners))])
    return "\n".join(columns(rows, right=range(1, 6)))


def _state(state: SubqueryState | None, buckets: int) -> list[str]:
    if state is None:
        return ["–"] * 4
    segments = state.segments
    rows, total = sum(s.rows for s in segments), sum(s.bytes for s in segments)
    return [str(buckets), str(len(segments)), count(rows), size(total)]
