"""`springtide checkpoint …`: what is in a checkpoint, whether it is whole, copies of it, savepoints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from springtide.cli.formatting import count, size
from springtide.cli.history import stamps
from springtide.cli.show import show
from springtide.compiler.tables import columns
from springtide.query.plurals import plural
from springtide.state.copying import Copied, backup
from springtide.state.copying import restore as restore_checkpoint
from springtide.state.manifest import Manifest
from springtide.state.read_only import opened
from springtide.state.savepoints import release as release_savepoint
from springtide.state.savepoints import save as save_checkpoint
from springtide.state.savepoints import savepoints
from springtide.state.stores import Store
from springtide.state.verifying import Verified
from springtide.state.verifying import verify as verify_checkpoint

app = typer.Typer(no_args_is_help=True, help="Look at a checkpoint, copy it, keep savepoints.")

CheckpointPath = Annotated[
    str, typer.Argument(metavar="CKPT", help="The folder of a checkpoint, a savepoint or a backup, or its URL: s3://….")
]
Target = Annotated[str, typer.Argument(metavar="TO", help="Where the copy goes: a folder, or a URL: s3://….")]


@app.command("list")
def list_(ckpt: CheckpointPath) -> None:
    """Show the epochs that are kept, and the savepoints."""
    with opened(ckpt) as checkpoint:
        name = checkpoint.identity()["query"]
        kept = checkpoint.history()
        saved = savepoints(ckpt)
        durable = [checkpoint.whole(m, shared_memory=False) for m in kept]
    parts = [f"query {name}, {plural(len(kept), 'epoch')} kept, {plural(len(saved), 'savepoint')}"]
    when = stamps([m.metrics.at for m in (*kept, *saved.values())])
    if kept:
        head = ["epoch", "time", "rows in", "segments", "state", ""]
        rows = [[*_cells(m, when), "" if whole else "not durable"] for m, whole in zip(kept, durable, strict=True)]
        parts.append("\n".join(columns([head, *rows], right=[0, 2, 3, 4])))
    if saved:
        head = ["savepoint", "epoch", "time", "rows in", "segments", "state"]
        rows = [[label, *_cells(m, when)] for label, m in saved.items()]
        parts.append("\n".join(columns([head, *rows], right=[1, 3, 4, 5])))
    show("\n\n".join(parts))


def _cells(manifest: Manifest, when: Callable[[float], str]) -> list[str]:
    segments = list(manifest.segments())
    return [
        str(manifest.epoch),
        when(manifest.metrics.at),
        count(sum(s.accepted for s in manifest.sources.values())),
        str(len(segments)),
        size(sum(s.bytes for s in segments)),
    ]


@app.command()
def verify(ckpt: CheckpointPath) -> None:
    """Check every file of a checkpoint and its savepoints, and whether all rows are accounted for.

    Damaged files are named, with what is in them."""
    with _bar("verifying") as progress:
        found = verify_checkpoint(ckpt, progress)
    show(verification_text(found))
    if found.damaged or found.unaccounted:
        raise typer.Exit(1)


def verification_text(found: Verified) -> str:
    """Write what was found."""
    of = f"{plural(found.files, 'file')} of {plural(len(found.epochs), 'epoch')}"
    of += f" and {plural(found.savepoints, 'savepoint')}" if found.savepoints else ""
    parts = []
    if found.damaged:
        parts.append(f"{of}, {len(found.damaged)} damaged")
        lines = [line for d in found.damaged for line in (f"{d.file} {d.problem}", f"  {d.holds}")]
        parts.append("\n".join(["what is damaged", *lines]))
    else:
        parts.append(f"{of}, {size(found.bytes)} of state: all whole")
    if found.unaccounted:
        parts.append("\n".join(["rows that are not accounted for", *found.unaccounted]))
    if found.again:
        epochs = f"{found.again[0]}–{found.again[-1]}" if len(found.again) > 1 else str(found.again[0])
        parts.append(f"the state of epoch {epochs} is not durable; a start rebuilds it")
    return "\n\n".join(parts)


@app.command()
def copy(ckpt: CheckpointPath, to: Target) -> None:
    """Copy a checkpoint to another folder or store. Files that are already there are not copied again.

    The query may be running: then its newest epoch is copied.
    """
    with _bar("copying") as progress:
        done = backup(ckpt, to, progress)
    show(_told(done, Store.at(to)))


@app.command()
def restore(
    ckpt: CheckpointPath,
    to: Target,
    at: Annotated[
        int | None, typer.Option(metavar="EPOCH", min=0, help="The epoch to go back to; by default the newest.")
    ] = None,
) -> None:
    """Make a new checkpoint from a copy, a savepoint or an older epoch.

    A run with the new checkpoint continues after that epoch. Rows of later epochs are produced again, so remove them from its output, or give it another one.
    """
    with _bar("restoring") as progress:
        done = restore_checkpoint(ckpt, to, at, progress)
    show(_told(done, Store.at(to)))


def _told(done: Copied, target: Store) -> str:
    new = f"{plural(done.files, 'file')}, {size(done.bytes)}" if done.files else "nothing new"
    there = f"; {plural(done.there, 'file')} already there" if done.there else ""
    return f"{target.url} has epoch {done.epochs[-1]}: {new}{there}"


@app.command()
def release(
    ckpt: CheckpointPath,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the savepoint.")],
) -> None:
    """Remove a savepoint. The checkpoint itself, and other savepoints, keep what they need."""
    release_savepoint(ckpt, name)
    show(f"the savepoint {name} is gone")


@app.command()
def save(
    ckpt: CheckpointPath,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the savepoint.")],
) -> None:
    """Keep the newest epoch as a savepoint, which is never cleaned up. The query may be running."""
    place = save_checkpoint(ckpt, name)
    epoch = savepoints(ckpt)[name].epoch
    show(f"savepoint {name} of epoch {epoch}: {_short(place)}")


def _short(path: Path | str) -> str:
    """Write a path as briefly as possible from here; an address stays as it is."""
    if isinstance(path, str):
        return path
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show the progress of long work, on a screen."""
    if not sys.stderr.isatty():
        yield None
        return
    parts = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
