"""Elasticity by hand only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from springtide.elastic.policies.policy import Proposal
from springtide.elastic.snapshot import Snapshot


@dataclass(frozen=True)
class Manual:
    """Proposes nothing: instances change when somebody says so.

    >>> Manual().decide(..., [])
    ()
    """

    def decide(self, snapshot: Snapshot, history: Sequence[Snapshot]) -> Sequence[Proposal]:
        """Leave everything as it is."""
        return ()
