"""From the reports of an epoch's tasks to the manifest that commits it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from springtide.compiler.plan import Plan
from springtide.exchange import gate
from springtide.operators import operator_of
from springtide.operators.sliding.operator import CLOSED
from springtide.query.ids import Generation
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.old_owners import at_old_owners
from springtide.state.accounts import SINK, SOURCE, add
from springtide.state.manager_state import ManagerState
from springtide.state.manifest import EpochLog, Manifest, SourceState, SubqueryState
from springtide.state.metrics import EpochMetrics
from springtide.state.segment import Segment


@dataclass(frozen=True)
class Batch:
    """A micro-batch of Spark, if Spark reads a source."""

    number: int
    offsets: str | None = None
    """A digest of Spark's own record of it: another micro-batch with the same number has another digest."""


def manifest_after(
    before: Manifest,
    live: Plan,
    epoch: Epoch,
    reports: Sequence[TaskReport],
    *,
    generation: Generation,
    sources: Mapping[str, SourceState],
    batch: Batch | None = None,
    metrics: EpochMetrics | None = None,
    elastic: ManagerState | None = None,
    log: EpochLog | None = None,
) -> Manifest:
    """Return the manifest of an epoch whose tasks are done. `live` is the plan with the old owners of this epoch.

    How far the sources were read is decided elsewhere (`sources`).
    """
    state = states_after(live, epoch, reports)
    old_owners = {n: last for n, last in epoch.old_owners.items() if not _finished(state[at_old_owners(n)], last)}
    gone = {at_old_owners(name) for name in epoch.old_owners if name not in old_owners}
    outbox = sorted((d for r in reports for d in r.outbox), key=lambda d: (d.sink, d.instance, d.file))
    return Manifest(
        epoch=epoch.number,
        generation=generation,
        sources=dict(sources),
        maps={name: bucket_map for name, bucket_map in epoch.maps.items() if name not in gone},
        state={name: stored for name, stored in state.items() if name not in gone},
        outbox=tuple(outbox),
        metrics=metrics or EpochMetrics(),
        elastic=elastic,
        old_owners=old_owners,
        ended=all(s.ended for s in sources.values()),
        batch=batch.number if batch else before.batch,
        offsets=batch.offsets if batch else before.offsets,
        log=log,
        accounts=accounts_after(before.accounts, reports),
        form=before.form,
        origins=before.origins,
    )


def states_after(live: Plan, epoch: Epoch, reports: Sequence[TaskReport]) -> dict[str, SubqueryState]:
    """Return the state of each stateful subquery after an epoch."""
    return {q.name: state_after(live, epoch, q.name, reports) for q in live.subqueries if q.head}


def state_after(live: Plan, epoch: Epoch, name: str, reports: Sequence[TaskReport]) -> SubqueryState:
    """Return the segments of a subquery that are alive after an epoch: not rewritten, not replaced, not expired."""
    own = sorted((r for r in reports if r.subquery == name), key=lambda r: r.instance)
    before = epoch.state.get(name, SubqueryState())
    marks = own[0].marks
    rewritten = {file for files in epoch.compact.get(name, {}).values() for file in files}
    oldest = operator_of(live, name).oldest(marks)

    def alive(segment: Segment) -> bool:
        if segment.kind in own[0].replaced or segment.file in rewritten:
            return False
        return segment.high >= oldest.get(segment.kind, segment.high)

    return SubqueryState(marks, (*filter(alive, before.segments), *(s for r in own for s in r.segments)))


def with_counts(
    states: Mapping[str, SourceState], epoch: Epoch, reports: Sequence[TaskReport]
) -> dict[str, SourceState]:
    """Return the states of the sources with what became of this epoch's rows, and with their greatest times."""
    greatest = gate.greatest(epoch.greatest, [r.greatest for r in reports])
    found = {}
    for name, state in states.items():
        counts = [r.sources[name] for r in reports if name in r.sources]
        found[name] = replace(
            state,
            greatest=greatest.get(name, gate.BEGINNING),
            accepted=state.accepted + sum(c["accepted"] for c in counts),
            late=state.late + sum(c["late"] for c in counts),
            rejected=state.rejected + sum(c["rejected"] for c in counts),
        )
    return found


def accounts_after(before: Mapping[str, Mapping[str, int]], reports: Sequence[TaskReport]) -> dict[str, dict[str, int]]:
    """Return the totals with what became of this epoch's rows."""
    read = [{f"{SOURCE} {name}": counts for name, counts in r.sources.items()} for r in reports]
    written = [{f"{SINK} {d.sink}": {"written": d.rows}} for r in reports for d in r.outbox]
    return add(before, *read, *(r.accounts for r in reports), *written)


def _finished(old: SubqueryState, last: int) -> bool:
    """Return whether old owners have emitted all windows up to the last of theirs."""
    return old.marks.get(CLOSED, gate.BEGINNING) >= last
