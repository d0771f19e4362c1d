"""From a proposal to an instruction: what it means for a bucket map."""

from __future__ import annotations

from collections.abc import Sequence

from springtide.elastic import maps
from springtide.elastic.policies.policy import Proposal
from springtide.query.ids import EpochNumber
from springtide.state.bucket_map import BucketMap
from springtide.state.instructions import ChangeKind, Instruction


def instruct(
    proposal: Proposal,
    before: BucketMap,
    time: float,
    epoch: EpochNumber,
    loads: Sequence[float] = (),
    grid: tuple[int, int] | None = None,
) -> Instruction | None:
    """Work out what a proposal means for a bucket map: None if nothing changes; raise ValueError if it is impossible.

    >>> asked = Proposal("heavy", "by hand", instances=3)
    >>> print(instruct(asked, BucketMap.even(6, 2), time=0.0, epoch=7))
    scale heavy: 2 → 3 instances; by hand
    """
    after, kind = _after(proposal, before, loads, grid)
    if after is before:
        return None
    changed = maps.moved(before, after)
    return Instruction(time, epoch, kind, proposal.subquery, before, after, changed, proposal.reason, proposal.trigger)


def _after(
    proposal: Proposal, before: BucketMap, loads: Sequence[float], grid: tuple[int, int] | None
) -> tuple[BucketMap, ChangeKind]:
    if proposal.owners is not None:
        after = maps.owned(before, proposal.owners, proposal.instances)
        return after, "scale" if after.instances != before.instances else "rebalance"
    if proposal.instances is not None:
        return maps.scale(before, proposal.instances, loads, grid), "scale"
    owners = list(before.owners)
    for bucket, owner in proposal.moves.items():
        owners[bucket] = maps.move(before, [bucket], owner).owners[bucket]
    return maps.owned(before, owners), "move"
