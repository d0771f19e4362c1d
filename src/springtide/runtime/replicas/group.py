"""A group of replicas, as it is kept in a store: a log of cuts, turns and finished epochs, and the replicas that take part.

    group.json               which group it is, the form of the query, and the epoch that the group continues from
    cuts/000000007           what epoch 7 reads: the first replica proposes it, and all execute the same
    turns/000000007.1        who publishes epoch 7; 000000007.2 is the turn of another, because the first did not finish
    done/000000007           the sinks have the rows of epoch 7
    members/a                how far replica a is
    joined/ID                a checkpoint that has taken part
    alarms/000000007.a       the rows that replica a made of epoch 7 differ from those that were published

    trimmed                  the oldest epochs have been removed

The records in `cuts`, `turns` and `done` are created conditionally and never changed. Epochs that are no longer needed are removed one by one, the oldest
first. So a replica that was asleep for very long, and creates a record that was there before, finds out: the record of the epoch before is gone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from springtide.query.errors import SpringtideError
from springtide.runtime.replicas.cuts import Cut
from springtide.runtime.replicas.turns import EpochDone, Turn
from springtide.state.checkpoint import Lineage
from springtide.state.names import numbered
from springtide.state.parsing import parsed
from springtide.state.published import Published
from springtide.state.stores import Store

MARKER = "group.json"
CUTS, TURNS, DONE, MEMBERS, JOINED, ALARMS = "cuts", "turns", "done", "members", "joined", "alarms"
TRIMMED = "trimmed"
KEPT = 1_000
"""Epochs that are kept in any case: for that long, another replica can begin with a savepoint of one."""
LONGEST = 10_000
"""The maximum number of epochs that are kept for a replica that is behind."""
_FORMAT = 1

T = TypeVar("T")


class ReplicaError(SpringtideError):
    """A group of replicas that a run cannot take part in, or no longer can, with what to do about it.

    >>> raise st.ReplicaError("group/", "has a replica a already", "give another name")
    Traceback (most recent call last):
    springtide.runtime.replicas.group.ReplicaError: group group/ has a replica a already; give another name
    """

    def __init__(self, group: str, problem: str, hint: str) -> None:
        """Keep the three parts, and join them into one line."""
        self.group, self.problem, self.hint = group, problem, hint
        super().__init__(f"group {group} {problem}; {hint}")

    def __reduce__(self) -> tuple[type[ReplicaError], tuple[str, str, str]]:
        """Make the error picklable, so that it can be sent between processes."""
        return type(self), (self.group, self.problem, self.hint)


class OtherRows(ReplicaError):
    """The alarm: the rows that a replica made differ from those that were published."""


@dataclass(frozen=True)
class Founding:
    """What a group was created with."""

    lineage: Lineage
    """The group as sinks see it: to them all replicas are runs of one checkpoint."""
    epoch: int
    """The last epoch before those of the group; -1 if there is none."""
    published: Published
    """What the sinks had at that time."""
    form: Mapping[str, Any]
    """The form of the query."""

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
        """Read what `encode` wrote; raise a ValueError if it is something else."""
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
    """How far a replica is, according to its last report."""

    name: str
    id: str
    """The id of its checkpoint."""
    checkpoint: str
    epoch: int
    running: bool = True
    by: str = ""
    instances: Mapping[str, int] = field(default_factory=dict)
    polars: str = ""
    at: float = field(default_factory=time.time)
    """The time of day, for people: no decision depends on it."""

    def encode(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(vars(self) | {"instances": dict(self.instances)}).encode()

    @staticmethod
    def decode(data: bytes) -> Member:
        """Read what `encode` wrote; raise a ValueError if it is something else."""
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
        """Return what the group was created with; None if there is no group yet."""
        return self._read(MARKER, Founding.decode)

    def found(self, founding: Founding) -> bool:
        """Create the group; return False if another replica has."""
        return self.store.create(MARKER, founding.encode())

    def cut(self, epoch: int) -> Cut | None:
        """Return what an epoch reads, if that has been decided."""
        return self._read(_cut(epoch), Cut.decode)

    def propose(self, epoch: int, cut: Cut) -> bool:
        """Decide what an epoch reads; return False if another replica has."""
        return self.store.create(_cut(epoch), cut.encode())

    def remembers(self, epoch: int, founding: Founding) -> bool:
        """Return whether everything that came after an epoch is still there; the epoch itself has happened."""
        return self.store.exists(_cut(epoch)) if epoch > founding.epoch else not self.store.exists(TRIMMED)

    def turns(self, epoch: int, known: tuple[Turn, ...] = ()) -> tuple[Turn, ...]:
        """Return the turns of an epoch, starting from those that are already known."""
        found = list(known)
        while (turn := self._read(_turn(epoch, len(found) + 1), Turn.decode)) is not None:
            found.append(turn)
        return tuple(found)

    def has_turn(self, epoch: int, number: int) -> bool:
        """Return whether that turn has been taken."""
        return self.store.exists(_turn(epoch, number))

    def take(self, turn: Turn) -> bool:
        """Take a turn; return False if another replica has."""
        return self.store.create(_turn(turn.epoch, turn.number), turn.encode())

    def done(self, epoch: int) -> EpochDone | None:
        """Return the record that the sinks have an epoch, if they do."""
        return self._read(_done(epoch), EpochDone.decode)

    def finish(self, done: EpochDone) -> bool:
        """Record that the sinks have an epoch; return False if another replica has."""
        return self.store.create(_done(done.epoch), done.encode())

    def newest(self) -> int:
        """Return the newest published epoch, as far as a listing shows; -1 if there is none."""
        return max((_epoch_of(path) for path in self.store.list(DONE)), default=-1)

    def trim(self, upto: int) -> int:
        """Remove the epochs before `upto`, the oldest first; return how many."""
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
        """Take a name, unless it is taken; return the replica that has it now."""
        path = f"{MEMBERS}/{member.name}"
        self.store.create(path, member.encode())
        return self._read(path, Member.decode) or member

    def write_member(self, member: Member) -> None:
        """Record how far a replica is."""
        self.store.write(f"{MEMBERS}/{member.name}", member.encode())

    def release(self, name: str) -> bool:
        """Allow the log to be trimmed without regard to a replica; return False if there is none with that name."""
        there = self.store.exists(f"{MEMBERS}/{name}")
        self.store.delete(f"{MEMBERS}/{name}")
        return there

    def has_joined(self, id: str) -> bool:
        """Return whether a checkpoint has taken part."""
        return self.store.exists(f"{JOINED}/{id}")

    def join(self, id: str, name: str) -> None:
        """Record that a checkpoint takes part."""
        self.store.write(f"{JOINED}/{id}", json.dumps({"name": name}).encode())

    def alarm(self, epoch: int, name: str, text: str) -> None:
        """Record that the rows of a replica differ from those that were published."""
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
