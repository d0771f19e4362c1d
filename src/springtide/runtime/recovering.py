"""Recovery (SE-3): state that is lost is rebuilt from the last whole checkpoint and the epochs since.

    restore     the newest manifest that is kept and whose segments are all whole
    partition   the buckets of each instance that lost state go to as many instances as the degree says: scale-out
    replay      the epochs since, silently: what they gave is in the outbox or with the sinks already

Recovery is scale-out to degree 1, or in parallel to a higher one. It changes nothing until it is done: if it fails on its way, it begins
again. The epochs are replayed as few large ones, since how the input is cut changes no row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from springtide.compiler.plan import Plan
from springtide.elastic import maps
from springtide.query.ids import NO_EPOCH
from springtide.query.plurals import plural
from springtide.runtime.buffers import joined
from springtide.runtime.committing import states_after
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.old_owners import with_old_owners
from springtide.runtime.planning import Ownership, plan_epoch
from springtide.state.bucket_map import BucketMap
from springtide.state.errors import CheckpointError
from springtide.state.manifest import EpochLog, Manifest
from springtide.state.names import STATE
from springtide.state.segment import Segment
from springtide.state.tiers import Tiers

_ARRIVES = 3.0
"""Seconds for which segments that are on their way to the store are waited for, before they count as lost."""
_NAMED = 5
"""Lost segments that an error names."""


def lost(tiers: Tiers, manifest: Manifest) -> list[Segment]:
    """Return the segments of which there is no whole copy in any tier."""
    if tiers.cache is not None:  # what is on its way from another node is not lost yet
        own = [s for s in manifest.segments() if tiers.nearest(s) is None]
        return tiers.absent(own, _ARRIVES if tiers.uploads_later else 0.0)
    backup = tiers.backup.files(STATE) if tiers.backup is not None else {}
    return [s for s in manifest.segments() if backup.get(s.file) != s.bytes and tiers.nearest(s) is None]


def missing(tiers: Tiers, manifest: Manifest) -> bool:
    """Return whether any segment is in no tier at all: a look at names, quick enough for every epoch."""
    return any(not tiers.copies(s) for s in manifest.segments()) and bool(lost(tiers, manifest))


def base_of(tiers: Tiers, kept: Sequence[Manifest]) -> int:
    """Find the newest manifest from which the last one can be rebuilt; return its place. There may be none: then say what is lost."""
    for place in range(len(kept) - 1, -1, -1):
        if kept[place].old_owners != kept[-1].old_owners or kept[place].form != kept[-1].form:
            break  # a window recreation began or ended, or the query was replaced: no replay crosses that
        if not lost(tiers, kept[place]):
            return place
        if kept[place].log is None:
            break  # nobody knows what this epoch took in
    if kept and kept[0].epoch == 0 and all(_replays(m, kept[-1]) for m in kept):
        return -1  # from the beginning
    gone = lost(tiers, kept[-1])
    named = "; ".join(f"{s} is {tiers.fate(s)}" for s in gone[:_NAMED]) + ("; …" if len(gone) > _NAMED else "")
    raise CheckpointError(
        tiers.root,
        f"has lost {plural(len(gone), 'segment')} with {plural(sum(s.rows for s in gone), 'row')}, and nothing is left to rebuild them from: {named}",
        "restore the files from a copy (springtide checkpoint restore), or start with a new checkpoint",
    )


def _replays(manifest: Manifest, newest: Manifest) -> bool:
    """Return whether an epoch can be done again on the way from the beginning."""
    return manifest.log is not None and not manifest.old_owners and manifest.form == newest.form


def partitioned(
    before: Mapping[str, BucketMap], gone: Sequence[Segment], degree: int, fixed: Container[str] = ()
) -> dict[str, BucketMap]:
    """Return the buckets of every instance that lost state to `degree` instances: itself and new ones. `fixed` maps stay."""
    after = dict(before)
    for name in dict.fromkeys(s.subquery for s in gone):
        if degree > 1 and name in after and name not in fixed:
            owners = {s.instance for s in gone if s.subquery == name and s.version == before[name].version}
            for instance in sorted(owners or range(before[name].instances)):
                after[name] = maps.split(after[name], instance, degree)
    return after


@dataclass(frozen=True)
class Recovery:
    """How lost state is rebuilt."""

    plan: Plan
    tiers: Tiers
    execute: Callable[[Epoch], Sequence[TaskReport]]
    degree: int
    limit: int
    """Rows that are replayed at once."""

    def run(self, kept: Sequence[Manifest], fixed: Container[str] = ()) -> Manifest:
        """Return the last manifest with its state rebuilt; `fixed` names the subqueries that are about to get another map anyway."""
        newest, gone = kept[-1], lost(self.tiers, kept[-1])
        place = base_of(self.tiers, kept)
        base = kept[place] if place >= 0 else Manifest(epoch=NO_EPOCH, generation=newest.generation)
        owners = partitioned(newest.maps, gone, self.degree, fixed)
        live = with_old_owners(self.plan, tuple(newest.old_owners))
        state = dict(base.state)
        for records in batches(kept[place + 1 :], self.limit):
            given = joined([m.log for m in records if m.log is not None])
            owned = Ownership(owners, state, newest.old_owners, origins=newest.origins)
            epoch = plan_epoch(live, records[-1].epoch, self.tiers, given, owned, silent=True)
            state = states_after(live, epoch, self.execute(epoch))
        return replace(newest, state=state, maps=owners)


def batches(records: Sequence[Manifest], limit: int) -> list[list[Manifest]]:
    """Cut the epochs to be replayed into as few as the limit of rows allows; one in which time was moved by hand stays alone."""
    found: list[list[Manifest]] = []
    rows = 0
    for manifest in records:
        log, before = manifest.log or EpochLog(), (found[-1][-1].log if found else None) or EpochLog()
        if not found or log.idle or before.idle or rows + log.rows > limit:
            found.append([])
            rows = 0
        found[-1].append(manifest)
        rows += log.rows
    return found
