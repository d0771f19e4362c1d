"""Which segments are rewritten as one, so that their number stays small. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence

from springtide.query.ids import InstanceId
from springtide.state.bucket_map import BucketMap
from springtide.state.manifest import SubqueryState
from springtide.state.segment import Segment

CROWD = 4
"""How many segments of about the same size are merged into one."""
FULL = 2_000_000
"""Segments with more rows are not merged again."""
ADOPTED = 100_000
"""The most rows of older bucket maps that are rewritten in one epoch: more would slow it down."""


def compaction(
    state: SubqueryState,
    bucket_map: BucketMap,
    whole: Container[str],
    versions: Container[str] = (),
    *,
    copy: bool = False,
) -> dict[InstanceId, tuple[str, ...]]:
    """Decide which segments each instance rewrites as one, so that their number stays small; kinds that are `whole` do not need it.

    Segments of an instance and a kind are merged when there are four of about one size. Segments of an older bucket map belong to several instances;
    when they are many, every instance takes its rows out of them, a few in each epoch: not in the first one with a map, for that
    is the one that a change is felt in. With `copy` (state recreation, SC-9) it does so at once.

    Segments of kinds with `versions` have rows that newer ones replace: those of any size are merged, with all smaller ones along, so that
    what is out of date does not stay longer than four times as much comes.
    """
    plans: dict[InstanceId, tuple[str, ...]] = {}
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
    """Choose segments of older maps to take over now, the smallest first; each becomes as many segments as there are instances, so fewer are chosen."""
    if len(foreign) < CROWD * instances:
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
) -> dict[InstanceId, tuple[str, ...]]:
    plans: dict[InstanceId, tuple[str, ...]] = {}
    for instance in map(InstanceId, range(bucket_map.instances)):
        sizes: dict[int, list[str]] = {}
        for s in segments:
            if s.version == bucket_map.version and s.instance == instance and (versions or s.rows < FULL):
                sizes.setdefault(s.rows.bit_length() // 2, []).append(s.file)
        crowded = [size for size, files in sorted(sizes.items()) if len(files) >= CROWD]
        merged = [s for s in sorted(sizes) if s == crowded[0] or (versions and s < crowded[0])] if crowded else []
        files = (*adopt, *(file for size in merged for file in sizes[size]))
        if files:
            plans[instance] = files
    return plans
