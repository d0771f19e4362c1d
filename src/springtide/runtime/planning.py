"""Plans one epoch: from what there is to read and who owns which bucket to what every task does. Pure.

what the sources have ── `share_out` ──→ input ─┐
what a log says       ── `joined`    ──→ input ─┼─ `plan_epoch` ──→ epoch, for the tasks
bucket maps, state    ──────────────→ ownership ┘
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from springtide.compiler.plan import Plan
from springtide.connectors import Slice, Source
from springtide.operators import operator_of
from springtide.query import steps
from springtide.query.ids import EpochNumber, InstanceId, Micros
from springtide.runtime.buffers import cannot_be_read_again
from springtide.runtime.compacting import compaction
from springtide.runtime.epoch import Epoch, EpochInput, Taken
from springtide.runtime.old_owners import at_old_owners
from springtide.runtime.topology import topology
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import SubqueryState
from springtide.state.tiers import Tiers


@dataclass(frozen=True)
class Ownership:
    """Who owns which state in an epoch."""

    maps: Mapping[str, BucketMap]
    state: Mapping[str, SubqueryState]
    """What each subquery begins with."""
    old_owners: Mapping[str, int] = field(default_factory=dict)
    """Subquery → the last window that its old owners finish."""
    copying: Collection[str] = ()
    """Subqueries whose state new owners copy at once (state recreation)."""
    former: Mapping[str, Mapping[int, BucketMap]] = field(default_factory=dict)
    """Subquery → version → an older map under which there are segments."""
    origins: tuple[str, ...] = ()
    """Sources and stateful steps by their rank, since the query was replaced."""
    migrated: frozenset[str] = frozenset()
    """Subqueries whose state other code has written."""


def share_out(plan: Plan, maps: Mapping[str, BucketMap], taken: Taken) -> EpochInput:
    """Return what each instance of each prefix reads."""
    slices = {
        q.name: assign_slices([s for name in q.sources for s in taken.slices.get(name, ())], maps[q.name].instances)
        for q in plan.subqueries
        if q.head is None
    }
    return EpochInput(taken.times, taken.greatest, slices)


def plan_epoch(
    live: Plan,
    number: EpochNumber,
    tiers: Tiers,
    given: EpochInput,
    owned: Ownership,
    *,
    buffered: frozenset[str] = frozenset(),
    silent: bool = False,
    merging: bool = False,
    digested: bool = False,
) -> Epoch:
    """Return what the tasks of an epoch do. `live` is the plan with the old owners of this epoch.

    An epoch that is `silent` has happened before: only its state is rebuilt. Nothing goes to sinks, and no segments are merged unless it is `merging`.
    """
    inputs = {**given.slices, **given.buffers}
    instances = {
        q.name: len(inputs[q.name]) if q.name in inputs else owned.maps[q.name].instances for q in live.subqueries
    }
    return Epoch(
        number,
        tiers,
        given.times,
        given.greatest,
        given.slices,
        topology(live, instances),
        {name: owned.maps[name] for name in instances},
        owned.state,
        compact={} if silent and not merging else _compaction(live, owned),
        old_owners=owned.old_owners,
        windows=windows_of(owned.old_owners),
        buffered=buffered,
        replayed=given.buffers,
        former=owned.former,
        silent=silent,
        origins=owned.origins,
        migrated=owned.migrated,
        digested=digested,
    )


def windows_of(old_owners: Mapping[str, int]) -> dict[str, tuple[int | None, int | None]]:
    """Return the first and the last window of old and of new owners; None is without bound.

    >>> windows_of({"heavy": 7})
    {'heavy@old': (None, 7), 'heavy': (8, None)}
    """
    windows: dict[str, tuple[int | None, int | None]] = {}
    for name, last in old_owners.items():
        windows |= {at_old_owners(name): (None, last), name: (last + 1, None)}
    return windows


def _compaction(live: Plan, owned: Ownership) -> dict[str, dict[InstanceId, tuple[str, ...]]]:
    """Return the segments that each instance of each subquery rewrites as one."""
    found = {}
    for name, state in owned.state.items():
        tables = operator_of(live, name).tables.items()
        whole, versions = {t for t, table in tables if table.whole}, {t for t, table in tables if table.versions}
        if merged := compaction(state, owned.maps[name], whole, versions, copy=name in owned.copying):
            found[name] = merged
    return found


def unrepeatable(
    plan: Plan, slices: Mapping[str, Sequence[Sequence[Slice]]], *, always: bool = False
) -> frozenset[str]:
    """Return the prefixes whose input cannot be read again, or with `always` all: what they send has to be kept."""
    sources = plan.graph.of_kind(steps.Source)
    once = {n for n, s in sources.items() if not (isinstance(s.connector, Source) and s.connector.replayable)}
    return frozenset(
        q.name
        for q in plan.subqueries
        if q.name in slices and (always or once.intersection(q.sources) or cannot_be_read_again(slices[q.name]))
    )


def assign_slices(slices: Sequence[Slice], instances: int) -> tuple[tuple[Slice, ...], ...]:
    """Return what each instance of a prefix reads of the slices of all its sources: about as many rows each.

    Slices of one physical stream go to one instance, in order, unless each but the last says its greatest ts: then the stream time before each is
    known and they can be read side by side.
    """
    shares: list[list[Slice]] = [[] for _ in range(instances)]
    loads = [0] * instances
    groups: dict[tuple[str, str], list[Slice]] = {}
    for part in slices:
        groups.setdefault((part.source, part.stream), []).append(part)
    for parts in groups.values():
        if len(parts) > 1 and all(p.greatest is not None for p in parts[:-1]):
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
    source: str, slices: Sequence[Slice], times: Mapping[str, Micros], disorder: Micros, beginning: Micros
) -> list[Slice]:
    """Return the slices, each with the stream time before it, as far as that is known."""
    now = dict(times)
    placed = []
    for part in slices:
        placed.append(part.at(source, now.get(part.stream, beginning)))
        if part.greatest is not None:
            now[part.stream] = max(now.get(part.stream, beginning), Micros(part.greatest - disorder))
    return placed
