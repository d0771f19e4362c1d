"""`springtide scale`, `move`, `rebalance`, `pause`, `resume`, `reload` and `stop`: commands to a query that runs elsewhere."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from springtide.cli.errors import CommandError
from springtide.cli.formatting import extra, size
from springtide.cli.status import CheckpointPath
from springtide.elastic.protocols import ProtocolChoice
from springtide.query.errors import nearest
from springtide.query.plurals import plural
from springtide.state.answers import Answer, Change
from springtide.state.checkpoint import Checkpoint
from springtide.state.control import Command, ask
from springtide.state.from_outside import from_outside

Step = Annotated[str, typer.Argument(metavar="STEP", help="A step of the query; stands for its whole subquery.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the query's answer.")]
Protocol = Annotated[
    ProtocolChoice | None, typer.Option(help="How state goes to its new owner; by default as the query was started.")
]

_MOST = 1 << 16
"""More buckets than any query has."""


def scale(
    ckpt: CheckpointPath,
    step: Step,
    instances: Annotated[int, typer.Argument(metavar="N", min=1, help="How many instances there should be.")],
    protocol: Protocol = None,
    wait: Wait = 10,
) -> None:
    """Change the number of instances of a part of a running query."""
    _change(ckpt, "scale", {"step": step, "instances": instances, "protocol": protocol}, wait)


def move(
    ckpt: CheckpointPath,
    step: Step,
    buckets: Annotated[str, typer.Argument(metavar="BUCKETS", help="The buckets to move, for example 3,7,10-15.")],
    to: Annotated[
        int, typer.Option(metavar="INSTANCE", min=0, help="The instance that gets them; instances are counted from 0.")
    ],
    protocol: Protocol = None,
    wait: Wait = 10,
) -> None:
    """Give some buckets of a running query to one of its instances."""
    _change(ckpt, "move", {"step": step, "buckets": parse_buckets(buckets), "to": to, "protocol": protocol}, wait)


def rebalance(ckpt: CheckpointPath, step: Step, protocol: Protocol = None, wait: Wait = 10) -> None:
    """Even out the load of a part of a running query, by the recent load of its buckets."""
    _change(ckpt, "rebalance", {"step": step, "protocol": protocol}, wait)


def pause(ckpt: CheckpointPath, wait: Wait = 10) -> None:
    """Pause automatic changes until springtide resume. Changes by hand are still made."""
    _switch(ckpt, "pause", "is paused; changes by hand are still made", wait)


def resume(ckpt: CheckpointPath, wait: Wait = 10) -> None:
    """Let the policy of a running query decide again."""
    _switch(ckpt, "resume", "is resumed", wait)


def reload(
    ckpt: CheckpointPath, wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for it.")] = 60
) -> None:
    """Have a running query read its file again, and continue in the form that it has there.

    What stays keeps its state. If it cannot be taken over, or does not run, the query continues as it was.
    """
    checkpoint, query = _running(ckpt)
    answer = _ask(checkpoint, Command("reload"), wait)
    if answer.status == "done":
        typer.echo(f"{query} has another form since epoch {answer.epoch:,}; springtide history says what it cost")
    else:
        typer.echo(f"sent to {query}; it reads its file again after the current epoch")


def stop(
    ckpt: CheckpointPath,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the query to end.")] = 30,
) -> None:
    """Stop a running query after the current epoch; a later run continues from there."""
    checkpoint, query = _running(ckpt)
    answer = _ask(checkpoint, Command("stop"), wait)
    if answer.status == "done":
        typer.echo(f"{query} stopped after epoch {answer.epoch:,}")
    else:
        typer.echo(f"sent to {query}; it will stop after the current epoch")


def parse_buckets(text: str) -> list[int]:
    """Read numbers and ranges of buckets.

    >>> parse_buckets("3, 7,10-12")
    [3, 7, 10, 11, 12]
    """
    found: set[int] = set()
    for part in text.split(","):
        numbers = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (0, -1)
        if not first <= last < _MOST:
            raise CommandError(f"{text!r} does not name buckets; write numbers and ranges of them: 3,7,10-15")
        found.update(range(first, last + 1))
    return sorted(found)


def _running(ckpt: str) -> tuple[Checkpoint, str]:
    """Return the checkpoint of a query that is running, and the query's name."""
    checkpoint = from_outside(ckpt)
    query = checkpoint.identity()["query"]
    if not checkpoint.in_use():
        where = ckpt if checkpoint.remote is None else checkpoint.store.url
        raise CommandError(f"the query {query!r} is not running on {where}; start it with springtide run")
    return checkpoint, query


def _ask(checkpoint: Checkpoint, command: Command, wait: float) -> Answer:
    answer = ask(checkpoint, command, wait)
    if answer.status in ("refused", "failed"):
        raise CommandError(answer.reason)
    return answer


def _change(ckpt: str, name: str, options: dict[str, Any], wait: float) -> None:
    checkpoint, query = _running(ckpt)
    _check_step(checkpoint, query, options["step"])
    answer = _ask(checkpoint, Command(name, options), wait)
    match answer.status:
        case "sent":
            typer.echo(f"sent to {query}; it takes effect with the next epoch")
        case "waiting":
            typer.echo(answer.reason)
        case _:
            typer.echo(_changed(answer.change, answer.epoch) if answer.change else answer.reason)


def _check_step(checkpoint: Checkpoint, query: str, step: str) -> None:
    """Refuse a step that the query does not have, without waiting for the query."""
    manifest = checkpoint.latest()
    names = {*checkpoint.identity()["steps"], *(manifest.maps if manifest else ())}
    if step not in names:
        raise CommandError(f"the query {query!r} has no step {step!r}; {nearest(step, names)}")


def _changed(change: Change, epoch: int | None) -> str:
    what = f"{change.subquery}: {change}, since epoch {epoch or 0:,}"
    if change.extra_seconds is None or change.bytes_moved is None:  # committed, but not measured yet
        return what
    what += f" ({extra(change.extra_seconds)})"
    if not change.buckets:
        return what
    buckets = f"{change.moved:,} of {plural(change.buckets, 'bucket')}"
    return f"{what}; {buckets} and {size(change.bytes_moved)} of state changed owners"


def _switch(ckpt: str, name: str, done: str, wait: float) -> None:
    checkpoint, query = _running(ckpt)
    if _ask(checkpoint, Command(name), wait).status == "done":
        typer.echo(f"elasticity of {query} {done}")
    else:
        typer.echo(f"sent to {query}; it takes effect after the current epoch")
