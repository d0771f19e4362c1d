"""What is left of a subquery's state after an epoch."""

from __future__ import annotations

from collections.abc import Sequence

from springtide.compiler.plan import Plan
from springtide.runtime.epoch import Epoch, Report
from springtide.runtime.heads import head_of
from springtide.state.manifest import SubqueryState
from springtide.state.segment import Segment


def state_after(live: Plan, epoch: Epoch, name: str, reports: Sequence[Report]) -> SubqueryState:
    """Work out which segments are alive after the epoch: not rewritten, not replaced, not expired."""
    own = sorted((r for r in reports if r.subquery == name), key=lambda r: r.instance)
    before = epoch.state.get(name, SubqueryState())
    marks = own[0].marks
    rewritten = {file for files in epoch.compact.get(name, {}).values() for file in files}
    oldest = head_of(live, name).oldest(marks)

    def alive(segment: Segment) -> bool:
        if segment.kind in own[0].replaced or segment.file in rewritten:
            return False
        return segment.high >= oldest.get(segment.kind, segment.high)

    return SubqueryState(marks, (*filter(alive, before.segments), *(s for r in own for s in r.segments)))
