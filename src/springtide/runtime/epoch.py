"""One epoch as plain data: what goes into it, what its tasks are told, and what they say when they are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from springtide.connectors import Slice
from springtide.exchange.blob import Times
from springtide.query.ids import EpochNumber, InstanceId, Micros
from springtide.runtime.topology import Topology
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import Delivery, Marks, SubqueryState
from springtide.state.segment import Segment
from springtide.state.tiers import Tiers
from springtide.state.traffic import NONE, Traffic


@dataclass(frozen=True)
class Taken:
    """What the sources have for an epoch."""

    times: Times
    """The stream times before the epoch's rows, and those that the driver decided: dummies and ends."""
    greatest: Mapping[str, Micros]
    """Source → the greatest time of a tuple before the epoch's rows, or of a dummy."""
    slices: Mapping[str, Sequence[Slice]]
    """By source."""
    idle: bool = False
    """The time of streams that are idle is moved on."""


@dataclass(frozen=True)
class EpochInput:
    """What an epoch takes in, instance by instance."""

    times: Times
    greatest: Mapping[str, Micros]
    slices: Mapping[str, tuple[tuple[Slice, ...], ...]]
    """Prefix subquery → instance → what it reads."""
    buffers: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Prefix subquery → instance → files of the buffer state that it sends again instead of reading anything."""


@dataclass(frozen=True)
class Epoch:
    """One epoch, as every task sees it."""

    number: EpochNumber
    tiers: Tiers
    """Where the checkpoint's files are."""
    times: Times
    """The stream times before the epoch's rows, and those that the driver decided: dummies and ends."""
    greatest: Mapping[str, Micros]
    """Source → the greatest time of a tuple before the epoch's rows, or of a dummy."""
    slices: Mapping[str, tuple[tuple[Slice, ...], ...]]
    """Prefix subquery → instance → what it reads."""
    topology: Topology
    """Where its subqueries run, old owners among them."""
    maps: Mapping[str, BucketMap]
    state: Mapping[str, SubqueryState]
    compact: Mapping[str, Mapping[InstanceId, tuple[str, ...]]] = field(default_factory=dict)
    """Subquery → instance → segments (files) to rewrite as one."""
    old_owners: Mapping[str, int] = field(default_factory=dict)
    """Subquery → the last window that its old owners finish, while they do (window recreation)."""
    windows: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Subquery → the first and the last window that is its business, while there is another owner for the rest."""
    buffered: frozenset[str] = frozenset()
    """Prefixes whose output is kept in the buffer state, because their input could not be read again."""
    replayed: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Prefix subquery → instance → files of the buffer state that it sends again instead of reading anything."""
    former: Mapping[str, Mapping[int, BucketMap]] = field(default_factory=dict)
    """Subquery → version → an older map under which there are segments; those that nobody remembers are not here."""
    silent: bool = False
    """It has happened before, and only its state is rebuilt: nothing goes to sinks."""
    origins: tuple[str, ...] = ()
    """Sources and stateful steps by their rank in the total order, as far as that is not by name: since the query was replaced."""
    migrated: frozenset[str] = frozenset()
    """Subqueries whose state other code has written: it is made into what theirs writes (`Operator.migrated`)."""
    digested: bool = False
    """Replicas compare what they make: tasks say a digest of the rows for each sink."""


@dataclass(frozen=True)
class TaskReport:
    """What a task says when it is done."""

    subquery: str
    instance: InstanceId
    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    """Rows that the head rejected."""
    busy: float = 0.0
    """Seconds of work."""
    wait: float = 0.0
    """Seconds that the task waited for its input."""
    began: float = 0.0
    """When, by the clock of its machine."""
    cpu: float = 0.0
    """Seconds of processor time of its work."""
    together: bool = False
    """One task did the work of all levels: when it began and ended says nothing about a stage of its own."""
    buckets: tuple[int, ...] = ()
    """Rows that came for each bucket."""
    times: Times = field(default_factory=dict)
    greatest: Mapping[str, Micros] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Source → read (as the slices say), accepted, late, rejected."""
    accounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What it sent, received, gave to sinks and found to have come after its time (`state/accounts.py`)."""
    samples: tuple[Mapping[str, str], ...] = ()
    """Some of the rows that were late or rejected, and why (`runtime/samples.py`)."""
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Source → physical stream → the topic that its rows are of, where the query does not name it."""
    marks: Marks = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    """Kinds of state of which only what was written now is left."""
    segments: tuple[Segment, ...] = ()
    outbox: tuple[Delivery, ...] = ()
    buffers: tuple[str, ...] = ()
    """Files with what a prefix sent, where that is kept."""
    traffic: Traffic = NONE
    """What its process asked of object stores and read of state since the last report."""
    lost: tuple[str, str, str] | None = None
    """What it could not do its work without (a `LostError`): the epoch cannot be committed."""

    def to_json(self) -> dict[str, Any]:
        """Write it for the way to the driver."""
        segments, outbox = [s.to_json() for s in self.segments], [vars(d) for d in self.outbox]
        return vars(self) | {"segments": segments, "outbox": outbox, "traffic": vars(self.traffic)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> TaskReport:
        """Read what `to_json` wrote."""
        segments = tuple(Segment.from_json(s) for s in data["segments"])
        lists = {name: tuple(data[name]) for name in ("replaced", "buckets", "buffers", "samples")}
        outbox, traffic = tuple(Delivery(**d) for d in data["outbox"]), Traffic(**data["traffic"])
        return TaskReport(**data | lists | {"segments": segments, "outbox": outbox, "traffic": traffic})
