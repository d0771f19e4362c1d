"""`springtide scale` and `springtide stop`: commands to a query that runs elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from springtide.cli.errors import CommandError
from springtide.cli.figures import plural
from springtide.cli.status import CheckpointPath
from springtide.query.errors import nearest
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, send
from springtide.state.manifest import Manifest

_LOOK = 0.05


def scale(
    ckpt: CheckpointPath,
    step: Annotated[str, typer.Argument(metavar="STEP", help="A step of the query; its whole subquery is scaled.")],
    instances: Annotated[int, typer.Argument(metavar="N", min=1, help="The wanted number of instances.")],
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the query to take it up.")] = 10,
) -> None:
    """Give a part of a running query another number of instances."""
    checkpoint, identity = _running(ckpt)
    steps = identity["steps"]
    before = checkpoint.latest()
    names = {*steps, *(before.maps if before else ())}
    if step not in names:
        raise CommandError(f"the query {identity['query']!r} has no step {step!r}; {nearest(step, names)}")
    left = send(checkpoint.root, Command("scale", {"step": step, "instances": instances}))
    until = time.monotonic() + wait
    if not _within(until, lambda: not left.exists()):
        typer.echo(f"left for {identity['query']}; it will take it up after the epoch at work")
        return
    taken = checkpoint.latest()
    changes = _changes(before, taken)
    if not changes and _within(until, lambda: _epoch(checkpoint.latest()) > _epoch(taken)):
        changes = _changes(before, taken := checkpoint.latest())
    if changes:
        typer.echo(f"{'; '.join(changes)}, since epoch {_epoch(taken):,}")
    elif _same(taken, step, instances):
        typer.echo(f"{step} has {plural(instances, 'instance')} already")
    elif _epoch(taken) > _epoch(before):
        typer.echo(f"taken up, but nothing changed: the subquery of {step} cannot have {plural(instances, 'instance')}")
    else:
        typer.echo("taken up; it takes effect with the next epoch")


def stop(
    ckpt: CheckpointPath,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the query to end.")] = 30,
) -> None:
    """Stop a running query after the epoch at work; a later run goes on from there."""
    checkpoint, identity = _running(ckpt)
    left = send(checkpoint.root, Command("stop"))
    if not _within(time.monotonic() + wait, lambda: not checkpoint.in_use()):
        typer.echo(f"left for {identity['query']}; it will stop after the epoch at work")
        return
    left.unlink(missing_ok=True)  # it ended by itself: the next run is not to stop at once
    typer.echo(f"{identity['query']} stopped after epoch {_epoch(checkpoint.latest()):,}")


def _running(ckpt: Path) -> tuple[Checkpoint, dict[str, Any]]:
    checkpoint = Checkpoint(ckpt)
    identity = checkpoint.identity()
    if not checkpoint.in_use():
        raise CommandError(f"the query {identity['query']!r} is not running on {ckpt}; springtide run starts it")
    return checkpoint, identity


def _within(until: float, done: Callable[[], bool]) -> bool:
    while not done():
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK)
    return True


def _epoch(manifest: Manifest | None) -> int:
    return -1 if manifest is None else manifest.epoch


def _changes(before: Manifest | None, after: Manifest | None) -> list[str]:
    if before is None or after is None:
        return []
    return [
        f"{name}: {before.maps[name].instances} → {plural(now.instances, 'instance')}"
        for name, now in after.maps.items()
        if name in before.maps and before.maps[name].instances != now.instances
    ]


def _same(manifest: Manifest | None, step: str, instances: int) -> bool:
    return manifest is not None and step in manifest.maps and manifest.maps[step].instances == instances
