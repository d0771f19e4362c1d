"""The driver's part of an epoch: plan it, have it run, commit it, publish it.

    take slices → run the tasks → manifest (atomic) → sinks (idempotent by epoch) → clean up

How tasks run is somebody else's business: on Spark or in this process.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from springtide.compiler.plan import Plan
from springtide.elastic.protocols import Wish
from springtide.elastic.resources.local import LocalSlots
from springtide.elastic.resources.resources import Resources
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.kernels import gate
from springtide.kernels.hashing import fingerprint
from springtide.query import steps
from springtide.query.errors import SpringtideError
from springtide.runtime.epoch import Epoch, Report, compaction, deal
from springtide.runtime.failpoints import failpoint
from springtide.runtime.heads import check_runs, head_of
from springtide.runtime.heads.sliding import CLOSED
from springtide.runtime.intake import Intake
from springtide.runtime.layout import layout
from springtide.runtime.measuring import measure
from springtide.runtime.reconfiguring import Reconfiguring
from springtide.runtime.shadows import shadow_of, with_shadows
from springtide.sinks.publication import Publication, Publisher
from springtide.state.checkpoint import KEEP, Checkpoint, Lease
from springtide.state.control import Command, receive
from springtide.state.history import History
from springtide.state.manifest import BucketMap, Manifest, SourceState, SubqueryState
from springtide.state.segment import BucketSizes, Segment

ROWS_PER_EPOCH = 4_000_000

Execute = Callable[[Epoch], Sequence[Report]]
"""Runs the tasks of an epoch and gives their reports."""


@dataclass(frozen=True)
class Options:
    """How a query is to run."""

    instances: int | Mapping[str, int] | None = None
    """For every subquery, or by step; those not named have as many as before."""
    rows_per_epoch: int = ROWS_PER_EPOCH
    """Admission: a burst makes more epochs, not larger ones."""
    usual: int = 1
    """How many instances a subquery gets that never had any and is not named."""
    elastic: Elastic | None = None
    """Who decides about instances and buckets while the query runs; None: only people do."""
    clock: Callable[[], float] = field(default=time.time)


class Engine:
    """One query on one checkpoint."""

    def __init__(
        self,
        plan: Plan,
        checkpoint: Checkpoint,
        execute: Execute,
        options: Options,
        resources: Resources | None = None,
    ) -> None:
        """Take the checkpoint; go on where it ends."""
        check_runs(plan)
        self.plan, self.checkpoint, self.options = plan, checkpoint, options
        self._execute, self._resources = execute, resources or LocalSlots()
        self.history = History(checkpoint.root)
        self._sizes = BucketSizes(checkpoint.root)
        self._ended_at = options.clock()
        self._backlogs: dict[str, int] = {}
        self._commands: list[Path] = []
        """Files of commands that take effect with the next epoch."""
        self.snapshot: Snapshot | None = None
        """What the last epoch of this run was like."""
        self._sources = plan.graph.of_kind(steps.Source)
        self.intake = Intake(self._sources, options.rows_per_epoch, options.clock)
        self.events: list[tuple[float, str]] = []
        """When, and what: scalings, refusals."""
        self.lease: Lease = checkpoint.acquire(identity(plan))
        try:
            self._kept = checkpoint.history()
            self.manifest = self._kept[-1] if self._kept else Manifest(epoch=-1, generation=self.lease.generation)
            self.reconfiguring = Reconfiguring(
                plan,
                self.manifest,
                options.elastic,
                self._resources,
                self.note,
                self._remember_decision,
                options.clock,
            )
            self.reconfiguring.begin(options.instances, options.usual)
            checkpoint.sweep(set().union(*(m.files() for m in self._kept)), self.manifest.epoch)
        except BaseException:
            self.lease.release()
            raise

    def close(self) -> None:
        """Let the checkpoint go."""
        self._resources.close()
        self.lease.release()

    @property
    def maps(self) -> dict[str, BucketMap]:
        """The bucket maps of the next epoch."""
        return self.reconfiguring.maps

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────

    def take_commands(self) -> bool:
        """Do what the control folder asks for, from the next epoch on; True when the run is to stop."""
        stop = False
        for command in receive(self.checkpoint.root, self._commands):
            assert command.file is not None
            if command.name == "stop":
                stop = True
                command.file.unlink(missing_ok=True)
                continue
            try:
                self._do(command)
                self._commands.append(command.file)  # done for good with the next manifest, which has the new map
            except (SpringtideError, KeyError, TypeError, ValueError) as error:
                self.note(f"the command {command.name!r} was refused: {error}")
                command.file.unlink(missing_ok=True)
        return stop

    def _do(self, command: Command) -> None:
        given, change, protocol = command.options, self.reconfiguring, command.options.get("protocol")
        match command.name:
            case "scale":
                change.scale(str(given["step"]), int(given["instances"]), protocol)
            case "move":
                change.move(str(given["step"]), [int(b) for b in given["buckets"]], int(given["to"]), protocol)
            case "rebalance":
                change.rebalance(str(given["step"]), protocol)
            case "pause":
                change.pause()
            case "resume":
                change.resume()
            case _:
                self.note(f"the command {command.name!r} is unknown and was left out")

    def scale(self, step: str, instances: int, protocol: Wish | None = None) -> None:
        """Give the subquery of a step another number of instances, from the next epoch on."""
        self.reconfiguring.scale(step, instances, protocol)

    def note(self, text: str) -> None:
        """Remember something that people may want to know."""
        self.events.append((self.options.clock(), text))
        del self.events[:-100]

    # ── one epoch ─────────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Tell whether an epoch now would do anything: new rows, an end, or time that moves on."""
        return self.intake.look(self.manifest.sources)

    def run(self, batch: int | None = None) -> Manifest:
        """Run the next epoch to the end: of what `has_work` saw, and of Spark's micro-batch `batch` if there is one."""
        self.reconfiguring.prepare()
        started = self.options.clock()
        epoch = self._plan()
        failpoint("before-job")
        reports = self._execute(epoch)
        failpoint("after-job")
        if self.intake.fails and self._fail_once(epoch.number):
            raise SpringtideError("a test wanted the run to fail here")
        manifest = replace(self._manifest(epoch, reports, started), batch=batch)
        self.checkpoint.commit(manifest, self.lease)
        failpoint("after-manifest")
        while self._commands:
            self._commands.pop().unlink(missing_ok=True)
        self.manifest = manifest
        self.reconfiguring.committed(manifest)
        backlogs, self._backlogs = self._backlogs, self.intake.backlogs()
        self.intake.done()
        self.publish()
        failpoint("after-publish")
        self._clean()
        failpoint("after-clean")
        self._measure(epoch, reports, started, backlogs)
        return manifest

    def publish(self) -> None:
        """Hand the rows of the last committed epoch to the sinks; doing it again changes nothing."""
        if self.manifest.epoch < 0:
            return
        for name, sink in self.plan.graph.of_kind(steps.Sink).items():
            deliveries = [d for d in self.manifest.outbox if d.sink == name]
            files = tuple(self.checkpoint.root / d.file for d in deliveries)
            connector = sink.connector
            assert isinstance(connector, Publisher)
            rows = tuple(d.rows for d in deliveries)
            connector.publish(Publication(name, self.manifest.epoch, sink.schema, files, rows))
            failpoint("during-publish")

    # ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _plan(self) -> Epoch:
        times, placed = self.intake.plan(self.manifest.sources)
        shadows, state = self.reconfiguring.shadows, self.reconfiguring.state(self.manifest)
        live = with_shadows(self.plan, tuple(shadows))
        instances = {q.name: self.maps[q.name].instances for q in live.subqueries}
        slices = {
            q.name: deal([s for name in q.sources for s in placed.get(name, ())], instances[q.name])
            for q in self.plan.subqueries
            if q.head is None
        }
        compact = {}
        for name, stored in state.items():
            kinds, copy = head_of(live, name).kinds.items(), name in self.reconfiguring.copying
            whole, versions = {k for k, kind in kinds if kind.whole}, {k for k, kind in kinds if kind.versions}
            if merged := compaction(stored, self.maps[name], whole, versions, copy=copy):
                compact[name] = merged
        number, root = self.manifest.epoch + 1, str(self.checkpoint.root)
        greatest = self.intake.greatest(self.manifest.sources)
        windows: dict[str, tuple[int | None, int | None]] = {}
        for name, last in shadows.items():
            windows |= {shadow_of(name): (None, last), name: (last + 1, None)}
        maps = {name: self.maps[name] for name in instances}
        return Epoch(number, root, times, greatest, slices, instances, maps, state, compact, tuple(shadows), windows)

    # ── committing ────────────────────────────────────────────────────────────────────────────────────────────────

    def _manifest(self, epoch: Epoch, reports: Sequence[Report], started: float) -> Manifest:
        times = gate.later(epoch.times, [r.times for r in reports])
        greatest = gate.greatest(epoch.greatest, [r.greatest for r in reports])
        sources = {}
        for name in self._sources:
            before = self.manifest.sources.get(name, SourceState())
            counts = [r.sources[name] for r in reports if name in r.sources]
            sources[name] = replace(
                self.intake.after(name, before, times.get(name, {})),
                greatest=greatest.get(name, gate.BEGINNING),
                accepted=before.accepted + sum(c["accepted"] for c in counts),
                late=before.late + sum(c["late"] for c in counts),
                rejected=before.rejected + sum(c["rejected"] for c in counts),
            )
        live = with_shadows(self.plan, epoch.shadows)
        state = {q.name: self._state(live, epoch, q.name, reports) for q in live.subqueries if q.head}
        shadows = {
            n: last for n, last in self.reconfiguring.shadows.items() if not _finished(state[shadow_of(n)], last)
        }
        gone = {shadow_of(name) for name in epoch.shadows if name not in shadows}
        outbox = sorted((d for r in reports for d in r.outbox), key=lambda d: (d.sink, d.instance, d.file))
        return Manifest(
            epoch=epoch.number,
            generation=self.lease.generation,
            sources=sources,
            maps={name: bucket_map for name, bucket_map in epoch.maps.items() if name not in gone},
            state={name: stored for name, stored in state.items() if name not in gone},
            outbox=tuple(outbox),
            metrics=self._metrics(reports, started),
            elastic=self.reconfiguring.manager.to_json() if self.reconfiguring.manager else {},
            shadows=shadows,
            ended=all(s.ended for s in sources.values()),
        )

    def _state(self, live: Plan, epoch: Epoch, name: str, reports: Sequence[Report]) -> SubqueryState:
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

    def _metrics(self, reports: Sequence[Report], started: float) -> dict[str, Any]:
        now = self.options.clock()
        subqueries, rows = {}, 0
        for q in self.plan.subqueries:
            own = sorted((r for r in reports if r.subquery == q.name), key=lambda r: r.instance)
            subqueries[q.name] = {
                "rows_in": [r.rows_in for r in own],
                "rows_out": [r.rows_out for r in own],
                "rejected": [r.rejected for r in own],
                "busy": [round(r.busy, 6) for r in own],
            }
            rows += sum(r.rows_in for r in own) if q.head is None else 0
        return {
            "at": now,
            "seconds": round(now - started, 6),
            "rows": rows,
            "published": sum(d.rows for r in reports for d in r.outbox),
            "backlog": self.intake.backlog,
            "subqueries": subqueries,
            "events": self.events[-10:],
        }

    def _measure(self, epoch: Epoch, reports: Sequence[Report], started: float, before: Mapping[str, int]) -> None:
        """Measure the epoch that is done, remember it, and hear what is to change."""
        now = self.options.clock()
        self.snapshot = measure(
            self.plan,
            epoch,
            reports,
            self.manifest,
            now=now,
            seconds=round(now - started, 6),
            period=round(now - self._ended_at, 6),
            backlogs={name: (before.get(name, 0), after) for name, after in self._backlogs.items()},
            bucket_bytes={
                q.name: self._sizes.of(self.manifest.state[q.name].segments, q.buckets or 1)
                for q in self.plan.subqueries
                if q.head
            },
            slots=self._resources.slots(),
            executors=self._resources.executors(),
        )
        self._ended_at = now
        self.history.append("snapshots", self.lease.generation, self.snapshot.to_json())
        self.reconfiguring.measured(self.snapshot)

    def _remember_decision(self, record: dict[str, Any]) -> None:
        self.history.append("decisions", self.lease.generation, {"at": self.options.clock()} | record)

    def _fail_once(self, number: int) -> bool:
        """Remember, next to the checkpoint, that a test's failure has happened."""
        marker = self.checkpoint.root / "control" / f"failed-{number}"
        if marker.exists():
            return False
        marker.parent.mkdir(exist_ok=True)
        marker.touch()
        return True

    def _clean(self) -> None:
        """Remove what no manifest that is kept speaks of. What an epoch leaves behind is gone some epochs later."""
        self._kept.append(self.manifest)
        while len(self._kept) > KEEP:
            old = self._kept.pop(0)
            # A segment lives through consecutive epochs: what the next one kept has lost is lost for good.
            for file in old.files() - self._kept[0].files():
                (self.checkpoint.root / file).unlink(missing_ok=True)
            self.checkpoint.forget(old.epoch)
        shutil.rmtree(self.checkpoint.root / "outbox" / f"{self.manifest.epoch - 1:09d}", ignore_errors=True)


def _finished(old: SubqueryState, last: int) -> bool:
    """Tell whether old owners have given all windows up to the last of theirs."""
    return old.marks.get(CLOSED, gate.BEGINNING) >= last


def identity(plan: Plan) -> dict[str, Any]:
    """Say what a checkpoint must have been made by to be gone on with."""
    inner = {n: s for n, s in plan.graph.steps.items() if not isinstance(s, steps.Source | steps.Sink)}
    described = {name: f"{step.kind}: {step.describe()}" for name, step in inner.items()}
    described |= {name: f"source: {dict(step.schema)}" for name, step in plan.graph.of_kind(steps.Source).items()}
    return {
        "query": plan.graph.name,
        "steps": described,
        "buckets": plan.buckets,
        "hash": fingerprint(),
        "polars": pl.__version__,
        "state": layout(plan),  # for people: two checkpoints that differ in nothing else are the same
    }
