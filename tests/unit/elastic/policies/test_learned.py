"""Learned limits: what brought nothing is not repeated, a hot bucket is balanced, settling is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from springtide.elastic.manager import Manager
from springtide.elastic.policies.learned import Learned
from springtide.elastic.policies.policy import Proposal
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot, SubqueryLoad
from springtide.state.bucket_map import BucketMap
from tests.unit.elastic.measured import measured
from tests.wording import says


@dataclass(frozen=True)
class More:
    """Wants twice as many, always."""

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        n = snapshot.subqueries["heavy"].instances
        return [Proposal("heavy", "it is slow", instances=2 * n)]


def spans(*spans: tuple[int, float]) -> list[Snapshot]:
    """Summaries of 5 s: instances, and how long their stage took for 1,000 rows."""
    found = []
    for i, (n, span) in enumerate(spans):
        own = SubqueryLoad(
            BucketMap.even(64, n, n), (1000 // n,) * n, (1,) * n, (4.0 / n,) * n, span=span, sources=("calls",)
        )
        found.append(replace(measured([1.0], time=5.0 * i), subqueries={"heavy": own}))
    return found


def decided(summaries: list[Snapshot], learned: Learned | None = None) -> Proposal:
    (proposal,) = (learned or Learned(More())).decide(summaries[-1], summaries[:-1])
    return proposal


def test_a_scale_out_that_brought_nothing_is_not_repeated_at_once() -> None:
    useless = spans(*[(2, 2.0)] * 3, *[(4, 2.0)] * 3)
    held_back = decided(useless).held_back
    assert held_back is not None
    assert held_back.startswith("10 s ago 4 instead of 2 instances ")
    assert held_back.endswith("600 s")
    assert not decided([*useless, replace(useless[-1], time=700.0)]).held_back, "later it may be tried again"
    assert not decided(spans(*[(2, 2.0)] * 3, *[(4, 1.0)] * 3)).held_back, "this one helped"
    assert not decided(spans(*[(2, 2.0)] * 3)).held_back
    balanced = spans(*[(2, 2.0)] * 3, *[(4, 2.0)] * 4, *[(4, 1.0)] * 3)
    assert not decided(balanced).held_back, "this one helped when the buckets were balanced"


def test_what_is_held_back_is_told() -> None:
    useless = spans(*[(2, 2.0)] * 3, *[(4, 2.0)] * 3)
    manager = Manager(Elastic(policy=Learned(More()), balancing=None, every=5, grace=0), history=useless[:-1])
    assert manager.handle(useless[-1]) == ()
    (refusal,) = manager.refusals
    assert refusal.rule == "experience"
    assert says(refusal, "refused for heavy: 8 instances; ", "10 s ago", "4 instead of 2 instances", "0%")


def hot(rows: list[int], owners: tuple[int, ...], instances: int) -> Snapshot:
    busy = [0.0] * instances
    for bucket, owner in enumerate(owners):
        busy[owner] += rows[bucket] / sum(rows)
    return measured(busy, buckets=BucketMap(0, instances, owners), bucket_rows=[1000 * n for n in rows])


def test_a_hot_bucket_is_balanced_not_scaled() -> None:
    #   bucket 0 has 60 % of the work and shares an instance with three others
    now = hot([60, 5, 5, 5, 5, 5, 5, 10], (0, 0, 0, 0, 1, 1, 1, 1), 2)
    proposal = decided([now])
    assert proposal.instances is None
    assert proposal.owners is not None
    assert proposal.owners.count(proposal.owners[0]) == 1, "it has an instance to itself"
    assert proposal.reason.startswith("bucket 0 alone has 60% of the work")


def test_a_hot_bucket_that_is_alone_cannot_be_helped() -> None:
    now = hot([60, 5, 5, 5, 5, 5, 5, 10], (0, 1, 1, 1, 1, 1, 1, 1), 2)
    assert says(decided([now]).held_back, "bucket 0 alone", "60%", "more instances")


def test_where_instances_help_they_are_given() -> None:
    now = hot([15, 12, 12, 12, 12, 12, 12, 13], (0, 0, 0, 0, 1, 1, 1, 1), 2)
    assert decided([now]) == Proposal("heavy", "it is slow", instances=4)


def test_nothing_is_decided_before_a_change_has_settled() -> None:
    #   after the first change rows were slow for two summaries; after the second it is the first one now
    slow = [(4, 3.0), (4, 2.0)]
    summaries = spans(*[(2, 2.0)] * 3, *slow, *[(4, 1.0)] * 4, (8, 1.0))
    costs = [4.0, 4.0, 4.0, 9.0, 8.0, 4.0, 4.0, 4.0, 4.0, 9.0]
    summaries = [
        replace(r, subqueries={"heavy": replace(own, busy=tuple(cost / own.instances for _ in own.busy))})
        for r, cost in zip(summaries, costs, strict=True)
        for own in r.subqueries.values()
    ]
    assert says(decided(summaries).held_back, "the last change", "0.0 s ago", "10.0 s to settle")


def test_fewer_instances_and_others_proposals_pass() -> None:
    class Less:
        def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
            return [Proposal("heavy", "quiet", instances=1), Proposal("heavy", "by hand", moves={0: 1})]

    now = measured([0.1, 0.1])
    assert [p.held_back for p in Learned(Less()).decide(now, [])] == ["", ""]


class Fewer:
    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        return [Proposal("heavy", "quiet", instances=snapshot.subqueries["heavy"].instances - 1)]


def test_what_was_fetched_lately_for_the_same_load_stays() -> None:
    def at(time: float, n: int, rows: int) -> Snapshot:
        return measured([0.7] * n, time=time, rows=rows, buckets=BucketMap.even(64, n, n))

    flat = [at(0, 3, 1000), at(5, 4, 1000), at(100, 4, 1000)]
    held_back = decided(flat, Learned(Fewer())).held_back
    assert held_back is not None
    assert says(held_back, "95 s ago", "3 instances", "could not keep up")
    peak = [at(0, 3, 1000), at(5, 4, 1000), at(50, 4, 1500), at(100, 4, 1000)]
    assert not decided(peak, Learned(Fewer())).held_back, "it was for the peak, and that is over"
    assert not decided([*flat, at(700, 4, 1000)], Learned(Fewer())).held_back
