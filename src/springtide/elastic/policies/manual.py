"""Manual changes only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Snapshot


@dataclass(frozen=True)
class Manual:
    """Proposes nothing: instances change only when a person asks for it.

    >>> Manual().decide(..., [])
    ()
    """

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Leave everything as it is."""
        return ()
