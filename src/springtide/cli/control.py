"""`springtide scale`, `move`, `rebalance`, `pause`, `resume` and `stop`: commands to a query that runs elsewhere."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import typer

from springtide.cli.errors import CommandError
from springtide.cli.figures import extra, plural, size
from springtide.cli.orders import Answer, check_step, epoch_of, order, running, within
from springtide.cli.status import CheckpointPath
from springtide.elastic.decisions import Decision
from springtide.elastic.protocols import Wish
from springtide.state.control import Command, send

Step = Annotated[str, typer.Argument(metavar="STEP", help="A step of the query; its whole subquery is meant.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the query to do it.")]
Protocol = Annotated[
    Wish | None, typer.Option(help="How state goes to its new owner; as the query was started, if not said.")
]

_MOST = 1 << 16
"""No query has as many buckets."""


def scale(
    ckpt: CheckpointPath,
    step: Step,
    instances: Annotated[int, typer.Argument(metavar="N", min=1, help="The wanted number of instances.")],
    protocol: Protocol = None,
    wait: Wait = 10,
) -> None:
    """Give a part of a running query another number of instances."""
    query, answer = _ask(ckpt, "scale", {"step": step, "instances": instances, "protocol": protocol}, wait)
    has = answer.manifest.maps.get(step) if answer.manifest else None
    nothing = f"{step} has {plural(has.instances if has else instances, 'instance')} already"
    _tell(query, answer, f"{nothing}; it has no more buckets" if has and has.instances < instances else nothing)


def move(
    ckpt: CheckpointPath,
    step: Step,
    buckets: Annotated[str, typer.Argument(metavar="BUCKETS", help="Which ones, for example 3,7,10-15.")],
    to: Annotated[int, typer.Option(metavar="INSTANCE", min=0, help="Who gets them; they are counted from 0.")],
    protocol: Protocol = None,
    wait: Wait = 10,
) -> None:
    """Give some buckets of a running query to one of its instances."""
    wanted = parse_buckets(buckets)
    query, answer = _ask(ckpt, "move", {"step": step, "buckets": wanted, "to": to, "protocol": protocol}, wait)
    _tell(query, answer, f"instance {to} of {step} has {'it' if len(wanted) == 1 else 'them'} already")


def rebalance(ckpt: CheckpointPath, step: Step, protocol: Protocol = None, wait: Wait = 10) -> None:
    """Even out the load of a part of a running query, by what its buckets did last."""
    query, answer = _ask(ckpt, "rebalance", {"step": step, "protocol": protocol}, wait)
    _tell(query, answer, f"the instances of {step} are as even as they can be")


def pause(ckpt: CheckpointPath, wait: Wait = 10) -> None:
    """Let nothing change but by hand, until springtide resume."""
    _switch(ckpt, "pause", "is paused; what you ask for by hand is still done", wait)


def resume(ckpt: CheckpointPath, wait: Wait = 10) -> None:
    """Let the policy of a running query decide again."""
    _switch(ckpt, "resume", "goes on", wait)


def stop(
    ckpt: CheckpointPath,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the query to end.")] = 30,
) -> None:
    """Stop a running query after the epoch at work; a later run goes on from there."""
    checkpoint, identity = running(ckpt)
    left = send(checkpoint.root, Command("stop"))
    if not within(time.monotonic() + wait, lambda: not checkpoint.in_use()):
        typer.echo(f"left for {identity['query']}; it will stop after the epoch at work")
        return
    left.unlink(missing_ok=True)  # it ended by itself: the next run is not to stop at once
    typer.echo(f"{identity['query']} stopped after epoch {epoch_of(checkpoint.latest()):,}")


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


def _ask(ckpt: CheckpointPath, name: str, options: dict[str, Any], wait: float) -> tuple[str, Answer]:
    checkpoint, identity = running(ckpt)
    check_step(checkpoint, identity, options["step"])
    return identity["query"], order(checkpoint, Command(name, options), wait)


def _tell(query: str, answer: Answer, nothing: str) -> None:
    if answer.refused is not None:
        raise CommandError(answer.refused)
    if answer.left:
        typer.echo(f"left for {query}; it takes effect with the next epoch")
    else:
        typer.echo(_done(answer.decision) if answer.decision else nothing)


def _done(decision: Decision) -> str:
    told, outcome = decision.instruction, decision.outcome
    what = f"{told.subquery}: {decision.change}"
    if outcome is None:
        return f"{what}, from the next epoch on"
    since = f"{what}, since epoch {outcome.epoch:,} ({extra(outcome.extra_seconds)})"
    if not told.after.owners:
        return since
    buckets = f"{len(told.moved):,} of {plural(len(told.after.owners), 'bucket')}"
    return f"{since}; {buckets} and {size(outcome.bytes_moved)} of state changed hands"


def _switch(ckpt: CheckpointPath, name: str, done: str, wait: float) -> None:
    checkpoint, identity = running(ckpt)
    query, manifest = identity["query"], checkpoint.latest()
    if manifest is not None and not manifest.elastic:
        raise CommandError(f"the query {query!r} is not elastic; springtide run --elastic starts it so")
    left = send(checkpoint.root, Command(name))
    if within(time.monotonic() + wait, lambda: not left.exists()):
        typer.echo(f"elasticity of {query} {done}")
    else:
        typer.echo(f"left for {query}; it takes effect after the epoch at work")
