"""The algebra of bucket maps: change the number of instances, move a bucket, balance the load. Pure.

Every change returns a new map with the next version; if nothing changes, the same map is returned. Within, buckets and instances are places in lists
and arrays, and plain numbers therefore.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from springtide.query.ids import BucketId, InstanceId
from springtide.query.plurals import plural
from springtide.state.bucket_map import BucketMap

Floats = npt.NDArray[np.float64]

CLOSE = 0.01
"""An instance whose load is this close to the average, as a share of it, gives nothing away when the number of instances changes."""


def moved(before: BucketMap, after: BucketMap) -> tuple[BucketId, ...]:
    """Return the buckets that have a different owner."""
    owners = zip(before.owners, after.owners, strict=True)
    return tuple(BucketId(b) for b, (old, new) in enumerate(owners) if old != new)


def totals(bucket_map: BucketMap, loads: Sequence[float]) -> list[float]:
    """Add up the loads of the buckets by instance."""
    if len(loads) != len(bucket_map.owners):
        raise ValueError(
            f"{plural(len(loads), 'load')} for {plural(len(bucket_map.owners), 'bucket')}: give one for each"
        )
    sums: list[float] = np.bincount(bucket_map.array, loads, bucket_map.instances).tolist()
    return sums


def move(before: BucketMap, buckets: Iterable[int], to: int) -> BucketMap:
    """Move some buckets to one instance.

    >>> move(BucketMap.even(6, 2), [0, 1], to=1)
    BucketMap(version=1, instances=2, owners=(1, 1, 0, 1, 0, 1))
    """
    if not 0 <= to < before.instances:
        raise ValueError(f"there is no instance {to}, they are 0 to {before.instances - 1}")
    owners: list[int] = list(before.owners)
    for bucket in buckets:
        if not 0 <= bucket < len(owners):
            raise ValueError(f"there is no bucket {bucket}, they are 0 to {len(owners) - 1}")
        owners[bucket] = to
    return owned(before, owners)


def split(before: BucketMap, instance: int, ways: int) -> BucketMap:
    """Distribute the buckets of one instance between itself and new instances (SE-3).

    >>> split(BucketMap.even(6, 2), 0, 2)
    BucketMap(version=1, instances=3, owners=(0, 1, 2, 1, 0, 1))
    """
    own = before.buckets_of(InstanceId(instance))
    ways = max(min(ways, len(own)), 1)
    owners: list[int] = list(before.owners)
    for turn, bucket in enumerate(own):
        owners[bucket] = instance if turn % ways == 0 else before.instances + turn % ways - 1
    return owned(before, owners, before.instances + ways - 1)


def owned(before: BucketMap, owners: Sequence[int], instances: int | None = None) -> BucketMap:
    """Assign every bucket to the given owner."""
    n = before.instances if instances is None else instances
    if len(owners) != len(before.owners):
        raise ValueError(
            f"{plural(len(owners), 'owner')} for {plural(len(before.owners), 'bucket')}: give one for each"
        )
    if n < 1 or not all(0 <= owner < n for owner in owners):
        raise ValueError(f"an owner is not among {plural(n, 'instance')}")
    if n == before.instances and tuple(owners) == before.owners:
        return before
    return _next(before, n, owners)


def scale(
    before: BucketMap, instances: int, loads: Sequence[float] = (), grid: tuple[int, int] | None = None
) -> BucketMap:
    """Change the number of instances while moving few buckets; the instances with the highest numbers are removed first.

    Without loads, all instances get the same number of buckets, give or take one, with as few moves as possible. With loads, all get
    the same load as far as the buckets allow: none has more than the average plus one bucket.

    The buckets of a grid, rows × columns, are redistributed in rectangles: there, a tuple goes to all owners of a row or a column,
    and having few owners is worth more than having few moves.

    >>> scale(BucketMap.even(6, 2), 3)
    BucketMap(version=1, instances=3, owners=(0, 1, 0, 1, 2, 2))
    >>> scale(BucketMap.even(6, 2), 3, loads=[8, 1, 1, 1, 1, 4])
    BucketMap(version=1, instances=3, owners=(2, 0, 0, 1, 0, 1))
    """
    if instances < 1:
        raise ValueError(f"{plural(instances, 'instance')}: at least 1 is needed")
    if before.owners and instances > len(before.owners):
        raise ValueError(f"{plural(instances, 'instance')} cannot share {plural(len(before.owners), 'bucket')}")
    if instances == before.instances:
        return before
    if grid is not None:
        return BucketMap.grid(*grid, instances, before.version + 1)
    owners = _by_load(before, instances, loads) if any(loads) else _by_number(before, instances)
    return _next(before, instances, owners)


def rebalance(before: BucketMap, loads: Sequence[float], worth: float = 0.02) -> BucketMap:
    """Balance the load without changing the number of instances (SC-11), moving few buckets.

    Repeatedly, the most loaded instance hands a bucket to the least loaded one. The paper takes the heaviest bucket; here it is the one
    that leaves the two instances most alike, which only differs if moving the heaviest would reverse the imbalance. If no bucket fits,
    two are swapped. A step that brings the two closer by less than `worth`, as a share of the average load, is not made; an instance
    that cannot be relieved is skipped, and the next one is considered. A bucket that is heavier than the average load ends up alone:
    any step that takes other buckets away from it is worth making.

    >>> rebalance(BucketMap.even(6, 2), [9, 1, 1, 1, 1, 1])
    BucketMap(version=1, instances=2, owners=(0, 1, 1, 1, 1, 1))
    """
    owners: list[int] = list(before.owners)
    weights = np.array(loads, dtype=np.float64)
    sums = np.array(totals(before, loads))
    least = worth * float(weights.sum()) / before.instances
    has = _held(before, before.instances)
    for _ in range(4 * len(owners)):  # each step narrows a difference, so this ends long before
        step = _step(sums, has, weights, least)
        if step is None:
            break
        giver, taker, (given, returned) = step
        for origin, target, bucket in ((giver, taker, given), (taker, giver, returned)):
            if bucket is not None:
                has[origin].remove(bucket)
                has[target].append(bucket)
                owners[bucket] = target
        # Not by adding and subtracting: because of rounding, the result would depend on how this map came about.
        sums = np.bincount(owners, weights, before.instances)
    return owned(before, owners)


def _next(before: BucketMap, instances: int, owners: Sequence[int]) -> BucketMap:
    return replace(before, version=before.version + 1, instances=instances, owners=tuple(map(InstanceId, owners)))


def _held(bucket_map: BucketMap, instances: int) -> list[list[int]]:
    """Return the buckets of each of the first `instances` instances."""
    has: list[list[int]] = [[] for _ in range(max(instances, bucket_map.instances))]
    for bucket, owner in enumerate(bucket_map.owners):
        has[owner].append(bucket)
    return has[:instances]


# ── scaling ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_number(before: BucketMap, instances: int) -> list[int]:
    """Return owners with equal numbers of buckets, give or take one; the extra ones stay with the instances that have the most now."""
    has = _held(before, instances)
    each, more = divmod(len(before.owners), instances)
    order = sorted(range(instances), key=lambda i: (-len(has[i]), i))
    share = {instance: each + (place < more) for place, instance in enumerate(order)}
    owners: list[int] = list(before.owners)
    free = [b for b, owner in enumerate(owners) if owner >= instances]
    free += [b for i in range(instances) for b in has[i][share[i] :]]
    takers = [i for i in range(instances) for _ in range(share[i] - len(has[i]))]
    for bucket, taker in zip(sorted(free), takers, strict=True):
        owners[bucket] = taker
    return owners


def _by_load(before: BucketMap, instances: int, loads: Sequence[float]) -> list[int]:
    """Instances with too much load give up the buckets that fit best; then all free buckets, heaviest first, go to the least loaded instance."""
    average, weights = sum(loads) / instances, np.array(loads, dtype=np.float64)
    owners: list[int] = list(before.owners)
    has = _held(before, instances)
    free = [b for b, owner in enumerate(owners) if owner >= instances]
    sums = totals(before, loads)[:instances] + [0.0] * (instances - before.instances)
    for i in range(min(instances, before.instances)):
        if sums[i] - average <= CLOSE * average:
            continue
        own = np.array([b for b in has[i] if loads[b] > 0], dtype=np.intp)
        left = weights[own]
        for _ in range(own.size):
            excess = sums[i] - average
            best = int(np.abs(excess - left).argmin())
            # Without this bucket, the instance would be farther from the average than with it.
            if excess <= CLOSE * average or left[best] >= 2 * excess:
                break
            free.append(int(own[best]))
            sums[i] -= loads[own[best]]
            left[best] = np.inf
    # Buckets without load count a little, or all of them would go to the least loaded instance.
    little = 0.001 * sum(loads) / len(loads)
    kept = set(range(len(owners))) - set(free)
    for bucket in kept:
        sums[owners[bucket]] += little
    heap = [(total, i) for i, total in enumerate(sums)]
    heapq.heapify(heap)
    for bucket in sorted(free, key=lambda b: (-loads[b], b)):
        while heap[0][0] < sums[heap[0][1]]:  # an outdated entry
            heapq.heapreplace(heap, (sums[heap[0][1]], heap[0][1]))
        least, owner = heap[0][0], before.owners[bucket]
        # An owner with hardly more load than the least loaded instance keeps the bucket that it gave up.
        taker = owner if owner < instances and sums[owner] <= least + CLOSE * average else heap[0][1]
        owners[bucket] = taker
        sums[taker] += loads[bucket] + little
    return owners


# ── balancing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

Exchange = tuple[int, int | None]
"""The bucket that is given away, and the one that is taken in return."""


def _step(sums: Floats, has: Sequence[list[int]], loads: Floats, least: float) -> tuple[int, int, Exchange] | None:
    """Find a step that relieves the most loaded instance that can be relieved: giver, taker, exchange."""
    average, taker = float(sums.mean()), int(sums.argmin())
    for giver in np.argsort(-sums, kind="stable").tolist():
        gap = float(sums[giver] - sums[taker])
        if gap <= least:
            return None
        given = loads[has[giver]]
        gain, place = _narrowing(gap, given)
        best: Exchange | None = (has[giver][place], None) if gain else None
        if best is not None and given.max() > average:
            return giver, taker, best
        if gain < gap / 2 and has[taker]:
            more, place = _narrowing(gap, (given[:, None] - loads[has[taker]]).ravel())
            if more > 2 * gain:  # an exchange is two moves, so it must be worth more than two
                one, other = divmod(place, len(has[taker]))
                gain, best = more, (has[giver][one], has[taker][other])
        if best is not None and gain > least:
            return giver, taker, best
    return None


def _narrowing(gap: float, loads: Floats) -> tuple[float, int]:
    """Return how much the gap narrows when the best of some loads changes sides, and that load's index; 0 if none helps."""
    if not loads.size:
        return 0.0, 0
    gains = 2 * np.minimum(loads, gap - loads)
    place = int(gains.argmax())
    return max(0.0, float(gains[place])), place
