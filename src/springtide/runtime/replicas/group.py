"""A group of replicas, as it is kept in a store: a log of cuts, of turns and of what is done, and who takes part.

    group.json               which group it is, what the query is like, and the epoch that the group goes on from
    cuts/000000007           what epoch 7 reads: whoever comes first proposes, all execute the same
    turns/000000007.1        who publishes epoch 7; 000000007.2 is the turn of another, because the first did not come to the end
    done/000000007           the sinks have the rows of epoch 7
    members/a                how far replica a is
    joined/ID                a checkpoint that has taken part
    alarms/000000007.a       replica a made other rows of epoch 7 than those that were published

    trimmed                  the oldest epochs have been removed

What is in `cuts`, `turns` and `done` is created conditionally and never changed. Epochs that nobody needs any more are removed one by one, the oldest first.
So a replica that was asleep for very long, and creates a record that was there before, finds out: there is none of the epoch before it any more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from springtide.query.errors import SpringtideError
from springtide.runtime.replicas.cuts import Cut
from springtide.runtime.replicas.turns import Done, Turn
from springtide.state.checkpoint import Lineage
from springtide.state.names import numbered
from springtide.state.parsing import parsed
from springtide.state.published import Published
from springtide.state.stores import Store

MARKER = "group.json"
CUTS, TURNS, DONE, MEMBERS, JOINED, ALARMS = "cuts", "turns", "done", "members", "joined", "alarms"
TRIMMED = "trimmed"
KEPT = 1_000
"""Epochs that are kept in any case: so long a savepoint of one replica will do for another to begin with."""
LONGEST = 10_000
"""Epochs that are kept at most for a replica that is behind."""
_FORMAT = 1

T = TypeVar("T")


class ReplicaError(SpringtideError):
    """A group of replicas that a run cannot take part in, or cannot any longer, with what to do about it.

    >>> raise st.ReplicaError("group/", "has a replica a already", "give another name")
    Traceback (most recent call last):
    springtide.runtime.replicas.group.ReplicaError: group group/ has a replica a already; give another name
    """

    def __init__(self, group: str, problem: str, hint: str) -> None:
        """Keep the three parts, and say them in one line."""
        self.group, self.problem, self.hint = group, problem, hint
        super().__init__(f"group {group} {problem}; {hint}")

    def __reduce__(self) -> tuple[type[ReplicaError], tuple[str, str, str]]:
        """Survive a trip between processes."""
        return type(self), (self.group, self.problem, self.hint)


class OtherRows(ReplicaError):
    """A replica made other rows than those that were published: the alarm."""


@dataclass(frozen=True)
class Founding:
    """What a group was made with."""

    lineage: Lineage
    """The group as sinks see it: to them all replicas are runs of one checkpoint."""
    epoch: int
    """The last epoch before those of the group; -1: none."""
    published: Published
    """What the sinks had then."""
    form: Mapping[str, Any]
    """What the query is like."""

    def encode(self) -> bytes:
        """Write it as JSON."""
        body = {
            "format": _FORMAT,
            "epoch": self.epoch,
            "form": self.form,
            "published": self.published.encode().decode(),
        }
        return json.dumps(body | self.lineage.to_json(), indent=1).encode()

    @staticmethod
    def decode(data: bytes) -> Founding:
        """Read what `encode` wrote; a ValueError says that it is something else."""
        body = parsed(data)
        try:
            if body["format"] != _FORMAT:
                raise ValueError(f"it has format {body['format']}, this version of Springtide reads {_FORMAT}")
            lineage = Lineage(str(body["id"]), tuple((str(id), int(epoch)) for id, epoch in body["ancestors"]))
            published = Published.decode(body["published"].encode())
            if published is None:
                raise ValueError("it does not say what was published")
            return Founding(lineage, int(body["epoch"]), published, dict(body["form"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not that of a group: {error}") from None


@dataclass(frozen=True)
class Member:
    """How far a replica is, as it said last."""

    name: str
    id: str
    """Of its checkpoint."""
    checkpoint: str
    epoch: int
    running: bool = True
    by: str = ""
    instances: Mapping[str, int] = field(default_factory=dict)
    polars: str = ""
    at: float = field(default_factory=time.time)
    """The time of day, for people: nothing is decided by it."""

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(vars(self) | {"instances": dict(self.instances)}).encode()

    @staticmethod
    def decode(data: bytes) -> Member:
        """Read what `encode` wrote; a ValueError says that it is something else."""
        body = parsed(data)
        try:
            instances = {str(name): int(number) for name, number in body["instances"].items()}
            texts = {name: str(body[name]) for name in ("name", "id", "checkpoint", "by", "polars")}
            return Member(
                **texts,
                epoch=int(body["epoch"]),
                running=bool(body["running"]),
                instances=instances,
                at=float(body["at"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not that of a replica: {error}") from None


class Group:
    """A group in its store."""

    def __init__(self, store: Store) -> None:
        """Name the store; nothing is touched yet."""
        self.store = store

    # ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────

    def founding(self) -> Founding | None:
        """Return what the group was made with; None if there is none."""
        return self._read(MARKER, Founding.decode)

    def found(self, founding: Founding) -> bool:
        """Make the group; False if another has."""
        return self.store.create(MARKER, founding.encode())

    def cut(self, epoch: int) -> Cut | None:
        """Return what an epoch reads, if that is decided."""
        return self._read(_cut(epoch), Cut.decode)

    def propose(self, epoch: int, cut: Cut) -> bool:
        """Decide what an epoch reads; False if another has."""
        return self.store.create(_cut(epoch), cut.encode())

    def remembers(self, epoch: int, founding: Founding) -> bool:
        """Return whether nothing is forgotten of what came after an epoch, which has happened."""
        return self.store.exists(_cut(epoch)) if epoch > founding.epoch else not self.store.exists(TRIMMED)

    def turns(self, epoch: int, known: tuple[Turn, ...] = ()) -> tuple[Turn, ...]:
        """Return the turns of an epoch, beginning with those that are known."""
        found = list(known)
        while (turn := self._read(_turn(epoch, len(found) + 1), Turn.decode)) is not None:
            found.append(turn)
        return tuple(found)

    def has_turn(self, epoch: int, number: int) -> bool:
        """Return whether somebody has that turn."""
        return self.store.exists(_turn(epoch, number))

    def take(self, turn: Turn) -> bool:
        """Take a turn; False if another has."""
        return self.store.create(_turn(turn.epoch, turn.number), turn.encode())

    def done(self, epoch: int) -> Done | None:
        """Return what the sinks have of an epoch, if they have it."""
        return self._read(_done(epoch), Done.decode)

    def finish(self, done: Done) -> bool:
        """Say that the sinks have an epoch; False if another has said so."""
        return self.store.create(_done(done.epoch), done.encode())

    def newest(self) -> int:
        """Return the newest epoch that was published, as far as a listing says; -1: none."""
        return max((_epoch_of(path) for path in self.store.list(DONE)), default=-1)

    def trim(self, upto: int) -> int:
        """Forget the epochs before `upto`, the oldest first; return how many."""
        files: dict[int, list[str]] = {}
        for folder in (CUTS, TURNS, DONE):
            for path in self.store.list(folder):
                if (epoch := _epoch_of(path)) < upto:
                    files.setdefault(epoch, []).append(path)
        if files:
            self.store.write(TRIMMED, b"")
        for epoch in sorted(files):
            self.store.delete(*files[epoch])
        return len(files)

    # ── who takes part ────────────────────────────────────────────────────────────────────────────────────────────

    def members(self) -> list[Member]:
        """Return the replicas, by name."""
        found = (self._read(path, Member.decode) for path in self.store.list(MEMBERS))
        return sorted((m for m in found if m is not None), key=lambda m: m.name)

    def named(self, member: Member) -> Member:
        """Take a name, unless somebody has it; return who has it now."""
        path = f"{MEMBERS}/{member.name}"
        self.store.create(path, member.encode())
        return self._read(path, Member.decode) or member

    def write_member(self, member: Member) -> None:
        """Say how far a replica is."""
        self.store.write(f"{MEMBERS}/{member.name}", member.encode())

    def release(self, name: str) -> bool:
        """Let the log be trimmed without regard to a replica; False if there is none of that name."""
        there = self.store.exists(f"{MEMBERS}/{name}")
        self.store.delete(f"{MEMBERS}/{name}")
        return there

    def has_joined(self, id: str) -> bool:
        """Return whether a checkpoint has taken part."""
        return self.store.exists(f"{JOINED}/{id}")

    def join(self, id: str, name: str) -> None:
        """Write down that a checkpoint takes part."""
        self.store.write(f"{JOINED}/{id}", json.dumps({"name": name}).encode())

    def alarm(self, epoch: int, name: str, text: str) -> None:
        """Leave word that a replica made other rows than those that were published."""
        self.store.write(f"{ALARMS}/{numbered(epoch)}.{name}", text.encode())

    def alarms(self) -> list[str]:
        """Return the alarms, oldest first."""
        found = (self._read(path, lambda data: data.decode(errors="replace")) for path in self.store.list(ALARMS))
        return [text for text in found if text is not None]

    def _read(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        try:
            return decode(self.store.read(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ReplicaError(
                self.store.url, f"cannot be read: {path} is damaged ({error})", "restore that file from a copy"
            ) from None


def _cut(epoch: int) -> str:
    return f"{CUTS}/{numbered(epoch)}"


def _turn(epoch: int, number: int) -> str:
    return f"{TURNS}/{numbered(epoch)}.{number}"


def _done(epoch: int) -> str:
    return f"{DONE}/{numbered(epoch)}"


def _epoch_of(path: str) -> int:
    number = path.rpartition("/")[2].partition(".")[0]
    return int(number) if number.isdecimal() else -1
