"""What is to be done in one epoch, decided before any of it is done. Pure, plain data: it goes to the tasks."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from springtide.kernels.blob import Times
from springtide.kernels.slices import Slice
from springtide.state.manifest import BucketMap, Delivery, Marks, SubqueryState
from springtide.state.segment import Segment
from springtide.state.tiers import Tiers


@dataclass(frozen=True)
class Epoch:
    """One epoch, as every task sees it."""

    number: int
    tiers: Tiers
    """Where the checkpoint's files are."""
    times: Times
    """The stream times before the epoch's rows, and those that the driver decided: dummies and ends."""
    greatest: Mapping[str, int]
    """Source → the greatest time of a tuple before the epoch's rows, or of a dummy."""
    slices: Mapping[str, tuple[tuple[Slice, ...], ...]]
    """Prefix subquery → instance → what it reads."""
    instances: Mapping[str, int]
    maps: Mapping[str, BucketMap]
    state: Mapping[str, SubqueryState]
    compact: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    """Subquery → instance → segments (files) to write anew as one."""
    shadows: tuple[str, ...] = ()
    """Subqueries whose old owners still finish windows."""
    windows: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Subquery → the first and the last window that is its business, while there is another owner for the rest."""
    buffered: frozenset[str] = frozenset()
    """Prefixes whose output is kept in the buffer state, because their input could not be read again."""
    replayed: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Prefix subquery → instance → files of the buffer state that it sends again instead of reading anything."""
    former: Mapping[str, Mapping[int, BucketMap]] = field(default_factory=dict)
    """Subquery → version → an older map under which there are segments; those that nobody remembers are not here."""
    silent: bool = False
    """It has happened before, and only its state is made anew: nothing goes to sinks."""


@dataclass(frozen=True)
class Report:
    """What a task says when it is done."""

    subquery: str
    instance: int
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
    buckets: tuple[int, ...] = ()
    """Rows that came for each bucket."""
    times: Times = field(default_factory=dict)
    greatest: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Source → read (as the slices say), accepted, late, rejected."""
    accounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What it sent, received, gave to sinks and found to have come after its time (`state/accounts.py`)."""
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Source → physical stream → the topic that its rows are of, where the query does not name it."""
    marks: Marks = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    """Kinds of state of which only what was written now is left."""
    segments: tuple[Segment, ...] = ()
    outbox: tuple[Delivery, ...] = ()
    buffers: tuple[str, ...] = ()
    """Files with what a prefix sent, where that is kept."""
    lost: tuple[str, str, str] | None = None
    """What it could not do its work without (a `LostError`): the epoch cannot be committed."""

    def to_json(self) -> dict[str, Any]:
        """Write it for the way to the driver."""
        return vars(self) | {"segments": [s.to_json() for s in self.segments], "outbox": [vars(d) for d in self.outbox]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Report:
        """Read what `to_json` wrote."""
        segments = tuple(Segment.from_json(s) for s in data["segments"])
        lists = {name: tuple(data[name]) for name in ("replaced", "buckets", "buffers")}
        return Report(**data | lists | {"segments": segments, "outbox": tuple(Delivery(**d) for d in data["outbox"])})


def deal(slices: Sequence[Slice], instances: int) -> tuple[tuple[Slice, ...], ...]:
    """Give the slices of all sources of a prefix to its instances, evenly by rows.

    Slices of one physical stream go to one instance, in order, unless each says its greatest ts: then the stream time before each is
    known and they can be read side by side.
    """
    shares: list[list[Slice]] = [[] for _ in range(instances)]
    loads = [0] * instances
    groups: dict[tuple[str, str], list[Slice]] = {}
    for part in slices:
        groups.setdefault((part.source, part.stream), []).append(part)
    for parts in groups.values():
        if len(parts) > 1 and all(p.greatest is not None for p in parts):
            target = sum(p.rows for p in parts) / instances
            filled, at = 0, min(range(instances), key=loads.__getitem__)
            for part in parts:  # runs of neighbours: a task reads files from front to back
                if filled and filled + part.rows / 2 > target:
                    filled, at = 0, (at + 1) % instances
                shares[at].append(part)
                loads[at] += part.rows
                filled += part.rows
        else:
            at = min(range(instances), key=loads.__getitem__)
            shares[at].extend(parts)
            loads[at] += sum(p.rows for p in parts)
    return tuple(tuple(share) for share in shares)


def with_times(
    source: str, slices: Sequence[Slice], times: Mapping[str, int], disorder: int, beginning: int
) -> list[Slice]:
    """Give each slice the stream time before it, as far as that is known."""
    now = dict(times)
    placed = []
    for part in slices:
        placed.append(part.at(source, now.get(part.stream, beginning)))
        if part.greatest is not None:
            now[part.stream] = max(now.get(part.stream, beginning), part.greatest - disorder)
    return placed


TIERS = 4
"""As many segments of a size are merged into one."""
FULL = 2_000_000
"""Segments with more rows are not merged again."""
ADOPTED = 100_000
"""Rows of older bucket maps that are written anew in one epoch: more would be felt."""


def compaction(
    state: SubqueryState,
    bucket_map: BucketMap,
    whole: Container[str],
    versions: Container[str] = (),
    *,
    copy: bool = False,
) -> dict[int, tuple[str, ...]]:
    """Decide which segments each instance writes anew as one, so that their number stays small; kinds that are `whole` need it not.

    Segments of an instance and a kind are merged when there are four of about one size. Segments of an older bucket map belong to several instances;
    when they are many, every instance takes its rows out of them, a few in each epoch: not in the first one with a map, for that
    is the one that a change is felt in. With `copy` (state recreation, SC-9) it does so at once.

    Segments of kinds with `versions` have rows that newer ones replace: those of any size are merged, with all smaller ones along, so that
    what is out of date does not stay longer than four times as much comes.
    """
    plans: dict[int, tuple[str, ...]] = {}
    settled = any(s.version == bucket_map.version for s in state.segments)
    for kind in dict.fromkeys(s.kind for s in state.segments if copy or s.kind not in whole):
        of_kind = [s for s in state.segments if s.kind == kind]
        foreign = [s for s in of_kind if s.version != bucket_map.version]
        few = _adopted(foreign, bucket_map.instances) if settled else ()
        adopt = tuple(s.file for s in foreign) if copy else few
        for instance, files in _compaction(of_kind, bucket_map, adopt, kind in versions).items():
            plans[instance] = (*plans.get(instance, ()), *files)
    return plans


def _adopted(foreign: Sequence[Segment], instances: int) -> tuple[str, ...]:
    """Choose segments of older maps that are taken over now, the smallest first; each becomes as many as there are instances, so these are fewer."""
    if len(foreign) < TIERS * instances:
        return ()
    found, rows = list[str](), 0
    for segment in sorted(foreign, key=lambda s: (s.rows, s.file)):
        rows += segment.rows
        if rows > ADOPTED and len(found) > instances:
            break
        found.append(segment.file)
    return tuple(found)


def _compaction(
    segments: Sequence[Segment], bucket_map: BucketMap, adopt: tuple[str, ...], versions: bool
) -> dict[int, tuple[str, ...]]:
    plans: dict[int, tuple[str, ...]] = {}
    for instance in range(bucket_map.instances):
        tiers: dict[int, list[str]] = {}
        for s in segments:
            if s.version == bucket_map.version and s.instance == instance and (versions or s.rows < FULL):
                tiers.setdefault(s.rows.bit_length() // 2, []).append(s.file)
        crowded = [tier for tier, files in sorted(tiers.items()) if len(files) >= TIERS]
        merged = [t for t in sorted(tiers) if t == crowded[0] or (versions and t < crowded[0])] if crowded else []
        files = (*adopt, *(file for tier in merged for file in tiers[tier]))
        if files:
            plans[instance] = files
    return plans
