"""`springtide replicas`: the replicas of a group, and how far each is."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from springtide.cli.errors import CommandError
from springtide.cli.formatting import count
from springtide.cli.show import show
from springtide.cli.status import ago
from springtide.compiler.tables import columns
from springtide.query.errors import nearest
from springtide.query.plurals import plural
from springtide.runtime.replicas.group import Group, Member
from springtide.state.stores import Store


def replicas(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group: its folder, or its address (s3://…).")],
    release: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A replica that is gone for good: the group no longer has to keep what it has not read.",
        ),
    ] = None,
) -> None:
    """Show the replicas of a query, how far each is, and where they disagreed."""
    found = Group(Store.at(group))
    founding = found.founding()
    if founding is None:
        raise CommandError(f"{found.store.url} is not a group of replicas; give what --replica-of was given")
    if release is not None:
        if not found.release(release):
            raise CommandError(f"there is no replica {release}; {nearest(release, [m.name for m in found.members()])}")
        typer.echo(f"{release} is released; to come back it must begin with a savepoint of another replica")
        return
    members, alarms = found.members(), found.alarms()
    newest = max([found.newest(), founding.epoch])
    parts = [
        f"query {founding.form.get('query')}, {plural(len(members), 'replica')}, published up to epoch {count(newest)}",
        "\n".join(columns([_HEAD, *(_row(m, newest, time.time()) for m in members)], right=range(2, 4))),
    ]
    show("\n\n".join([*parts, *(f"alarm: {text}" for text in alarms)]))


_HEAD = ["replica", "how", "epoch", "behind", "instances", "heard of", "checkpoint"]


def _row(member: Member, newest: int, now: float) -> list[str]:
    instances = ", ".join(f"{name} {number}" for name, number in member.instances.items())
    how = "running" if member.running else "stopped"
    behind = count(max(newest - member.epoch, 0))
    return [member.name, how, count(member.epoch), behind, instances or "–", ago(member.at, now), member.checkpoint]
