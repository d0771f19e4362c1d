"""What a policy is: a class that looks at a snapshot and makes proposals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from springtide.elastic.snapshot import Snapshot
from springtide.query.plurals import plural
from springtide.query.usage import usage_of
from springtide.state.instructions import Trigger


@usage_of("st.Proposal('step', 'too much to do', instances=4)", "(proposal)")
@dataclass(frozen=True)
class Proposal:
    """What a policy would like for one subquery. The manager may refuse it.

    Give a number of instances and let the manager decide who gets which bucket; or give the owners of some buckets (`moves`),
    or of all buckets (`owners`, together with `instances` if their number changes).
    """

    subquery: str
    reason: str
    """One sentence for people to read."""
    trigger: Trigger | None = None
    instances: int | None = None
    moves: Mapping[int, int] = field(default_factory=dict)
    """Bucket → instance."""
    owners: tuple[int, ...] | None = None
    """The instance of each bucket."""
    held_back: str = ""
    """Why it should not be done after all. The manager records it together with its own refusals."""

    def __post_init__(self) -> None:
        """Refuse proposals that ask for nothing, or for two things at once."""
        if self.instances is None and self.owners is None and not self.moves:
            raise ValueError(f"a proposal for {self.subquery!r} must say instances, moves or owners")
        if self.moves and (self.owners is not None or self.instances is not None):
            raise ValueError(f"a proposal for {self.subquery!r} says moves and a whole map; it can be only one of them")

    def __str__(self) -> str:
        """Return what is wanted."""
        if self.instances is not None:
            return plural(self.instances, "instance")
        return f"{plural(len(self.moves), 'bucket')} moved" if self.moves else "another owner for some buckets"


class Policy(Protocol):
    """Decides when a subquery gets more instances, fewer instances, or different buckets.

    >>> class Night:
    ...     def decide(self, snapshot, history):
    ...         hour = snapshot.time / 3600 % 24
    ...         n = 1 if 1 <= hour < 6 else 8
    ...         return [Proposal(name, f"it is {hour:.0f} o'clock", instances=n) for name in snapshot.subqueries]
    >>> Night().decide(Snapshot(7200.0, 0, 1.0, 1.0, {}, {"heavy": ...}), [])
    [Proposal(subquery='heavy', reason="it is 2 o'clock", trigger=None, instances=1, ...)]
    """

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Propose changes for some of the subqueries; `history` has the earlier snapshots, oldest first."""
        ...
