"""What is kept of a run for people and for policies: snapshots of its epochs, decisions, and events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from springtide.compiler.plan import Plan
from springtide.elastic.resources.resources import Resources
from springtide.elastic.snapshot import Snapshot
from springtide.query.ids import EpochNumber, Generation
from springtide.runtime.clocks import SteadyClock
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.measuring import measure
from springtide.runtime.options import Options
from springtide.runtime.samples import EVERY, gathered
from springtide.runtime.storage import Storage
from springtide.state.checkpoint import Checkpoint
from springtide.state.history import History, HistoryKind
from springtide.state.manifest import Manifest
from springtide.state.segment import BucketSizes
from springtide.state.traffic import taken

_PAST = 1000
"""Snapshots of earlier runs that policies learn from."""
_EVENTS = 100
"""Events that a run remembers."""


class Observer:
    """Measures one run, and keeps its history."""

    def __init__(self, plan: Plan, checkpoint: Checkpoint, options: Options, resources: Resources) -> None:
        """Begin to look now."""
        self.plan, self._options, self._resources = plan, options, resources
        self.now = SteadyClock(options.clock, options.timer)
        self.history = History(checkpoint.root)
        self.events: list[tuple[float, str]] = []
        """When, and what: changes of instances, refusals, losses."""
        self.snapshot: Snapshot | None = None
        """What the last epoch of this run was like."""
        self._ended_at = options.timer()
        self._started_at: float | None = None
        self._sampled_at = -math.inf
        self._backlogs: Mapping[str, int] = {}
        self._sizes: BucketSizes | None = None

    def past(self) -> list[Snapshot]:
        """Return what earlier runs measured last, oldest first. Records that cannot be read are left out: nothing depends on them.

        They may be of another machine, whose clock is minutes ahead: time goes on from there, or policies would wait until it has caught up.
        """
        found = []
        for record in self.history.read("snapshots", _PAST):
            with suppress(ValueError, KeyError, TypeError, AttributeError, IndexError):
                found.append(Snapshot.from_json(record))
        if found:
            self.now.not_before(found[-1].time)
        return found

    def note(self, text: str) -> None:
        """Remember something that people may want to know."""
        self.events.append((self._options.clock(), text))
        del self.events[:-_EVENTS]

    def epoch(
        self,
        epoch: Epoch,
        reports: Sequence[TaskReport],
        manifest: Manifest,
        storage: Storage,
        started: float,
        backlogs: Mapping[str, int],
    ) -> Snapshot:
        """Measure an epoch that is done, write it down, and return its snapshot; `backlogs` has the rows that wait at each source."""
        now, before, self._backlogs = self._options.timer(), self._backlogs, backlogs
        sizes = self._sizes = self._sizes or BucketSizes(lambda segment: storage.tiers.nearest(segment))
        self.snapshot = measure(
            self.plan,
            epoch,
            reports,
            manifest,
            now=self.now(),
            clock=self._options.clock(),
            seconds=round(now - started, 6),
            period=round(now - self._ended_at, 6),
            between=None if self._started_at is None else round(started - self._started_at, 6),
            backlogs={name: (before.get(name, 0), after) for name, after in backlogs.items()},
            bucket_bytes={
                q.name: sizes.of(manifest.state[q.name].segments, q.buckets or 1)
                for q in self.plan.subqueries
                if q.head
            },
            slots=self._resources.slots(),
            executors=self._resources.executors(),
            traffic=sum((r.traffic for r in reports), taken()) if storage.tiers.cache is not None else None,
        )
        self._ended_at, self._started_at = now, started
        self._write_down("snapshots", storage.lease.generation, self.snapshot.to_json())
        self._keep_samples(storage.lease.generation, epoch.number, reports)
        return self.snapshot

    def _keep_samples(self, generation: Generation, epoch: EpochNumber, reports: Sequence[TaskReport]) -> None:
        """Record some of the late and rejected rows; if there are many, not of every epoch."""
        found = gathered(reports)
        if found and (now := self._options.timer()) - self._sampled_at >= EVERY:
            self._sampled_at = now
            self._write_down("refused", generation, {"at": self._options.clock(), "epoch": epoch, "rows": found})

    def decision(self, generation: Generation, record: Mapping[str, Any]) -> None:
        """Write down a decision, or what it cost."""
        self._write_down("decisions", generation, {"at": self._options.clock()} | dict(record))

    def _write_down(self, kind: HistoryKind, generation: Generation, record: dict[str, Any]) -> None:
        """Add to the history. A query does not need it to continue: on a full disk it continues without."""
        try:
            self.history.append(kind, generation, record)
        except OSError as error:
            self.note(f"the history could not be written: {error}")
