"""The driver's part of an epoch: plan it, have it run, commit it, publish it.

    take slices → run the tasks → manifest (atomic) → sinks (idempotent by epoch) → clean up

How tasks run is somebody else's business: on Spark or in this process.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from springtide.compiler.plan import Plan
from springtide.kernels import gate
from springtide.kernels.hashing import fingerprint
from springtide.query import steps
from springtide.query.errors import QueryError, SpringtideError, nearest
from springtide.query.types import END_OF_TIME
from springtide.runtime.epoch import Epoch, Report, compaction, deal, with_times
from springtide.runtime.failpoints import failpoint
from springtide.sinks.publication import Publication
from springtide.kernels.slices import NativeSource, Take
from springtide.state.checkpoint import KEEP, Checkpoint, Lease
from springtide.state.control import Command, receive
from springtide.state.manifest import BucketMap, Manifest, SourceState, SubqueryState
from springtide.state.segment import Segment

ROWS_PER_EPOCH = 4_000_000

Execute = Callable[[Epoch], Sequence[Report]]
"""Runs the tasks of an epoch and gives their reports."""


@dataclass(frozen=True)
class Options:
    """How a query is to run."""

    instances: int | Mapping[str, int] = 1
    """For every subquery, or by step."""
    rows_per_epoch: int = ROWS_PER_EPOCH
    """Admission: a burst makes more epochs, not larger ones."""
    clock: Callable[[], float] = field(default=time.time)


class Engine:
    """One query on one checkpoint."""

    def __init__(self, plan: Plan, checkpoint: Checkpoint, execute: Execute, options: Options) -> None:
        """Take the checkpoint; go on where it ends."""
        self.plan, self.checkpoint, self.options = plan, checkpoint, options
        self._execute = execute
        self._sources = plan.graph.of_kind(steps.Source)
        self.lease: Lease = checkpoint.acquire(identity(plan))
        try:
            self._kept = checkpoint.history()
            self.manifest = self._kept[-1] if self._kept else Manifest(epoch=-1, generation=self.lease.generation)
            self.maps = self._starting_maps()
            checkpoint.sweep(set().union(*(m.files() for m in self._kept)), self.manifest.epoch)
        except BaseException:
            self.lease.release()
            raise
        self.events: list[tuple[float, str]] = []
        """When, and what: scalings, refusals."""
        self._takes: dict[str, Take] = {}
        self._seen: dict[tuple[str, str], float] = {}

    def close(self) -> None:
        """Let the checkpoint go."""
        self.lease.release()

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────

    def take_commands(self) -> bool:
        """Do what the control folder asks for, from the next epoch on; True when the run is to stop."""
        stop = False
        for command in receive(self.checkpoint.root):
            if command.name == "stop":
                stop = True
            elif command.name == "scale":
                self._attempt(
                    command, lambda c=command: self.scale(str(c.options["step"]), int(c.options["instances"]))
                )  # type: ignore[misc]
            else:
                self.note(f"the command {command.name!r} is unknown and was left out")
        return stop

    def scale(self, step: str, instances: int) -> None:
        """Give the subquery of a step another number of instances, from the next epoch on."""
        name = self._subquery_of(step)
        before = self.maps[name]
        after = self._map(name, instances, before)
        if after is not before:
            self.maps[name] = after
            self.note(f"scaled {name}: {before.instances} → {after.instances} instances")

    def note(self, text: str) -> None:
        """Remember something that people may want to know."""
        self.events.append((self.options.clock(), text))
        del self.events[:-100]

    def _attempt(self, command: Command, action: Callable[[], None]) -> None:
        try:
            action()
        except (SpringtideError, KeyError, ValueError) as error:
            self.note(f"the command {command.name!r} was refused: {error}")

    # ── one epoch ─────────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Tell whether an epoch now would do anything: new rows, an end, or time that moves on."""
        self._takes = {
            name: self._take(name) for name in self._sources if not self.manifest.sources.get(name, SourceState()).ended
        }
        return any(t.slices or t.ended or t.times for t in self._takes.values()) or bool(self._idle())

    def run(self, number: int) -> Manifest:
        """Run an epoch to the end. One that is committed already is only published again."""
        if number == self.manifest.epoch:
            self.publish(self.manifest)
            return self.manifest
        if number != self.manifest.epoch + 1:
            raise SpringtideError(
                f"epoch {number} was asked for but the checkpoint {self.checkpoint.root} ends with {self.manifest.epoch}: it is not the one that belongs to this run"
            )
        started = self.options.clock()
        epoch = self._plan(number)
        failpoint("before-job")
        reports = self._execute(epoch)
        failpoint("after-job")
        if any(t.fail for t in self._takes.values()) and self._fail_once(number):
            raise SpringtideError("a test wanted the run to fail here")
        manifest = self._manifest(epoch, reports, started)
        self.checkpoint.commit(manifest, self.lease)
        failpoint("after-manifest")
        self.manifest, self._takes = manifest, {}
        self.publish(manifest)
        failpoint("after-publish")
        self._clean()
        failpoint("after-clean")
        return manifest

    def publish(self, manifest: Manifest) -> None:
        """Hand the rows of a committed epoch to the sinks; doing it again changes nothing."""
        for name, sink in self.plan.graph.of_kind(steps.Sink).items():
            deliveries = [d for d in manifest.outbox if d.sink == name]
            files = tuple(self.checkpoint.root / d.file for d in deliveries)
            publication = Publication(name, manifest.epoch, sink.schema, files, tuple(d.rows for d in deliveries))
            sink.connector.publish(publication)  # type: ignore[attr-defined]
            failpoint("during-publish")

    # ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _plan(self, number: int) -> Epoch:
        if not self._takes:
            self.has_work()
        times = {name: dict(self.manifest.sources.get(name, SourceState()).times) for name in self._sources}
        placed = {}
        for name, take in self._takes.items():
            known = times[name]
            for stream in take.streams:
                known.setdefault(stream, gate.BEGINNING)
            source = self._sources[name]
            placed[name] = with_times(name, take.slices, known, source.max_disorder, gate.BEGINNING)
        for name, take in self._takes.items():
            for stream, moved in take.times.items():
                times[name][stream] = max(moved, times[name].get(stream, gate.BEGINNING))
            if take.ended and not take.streams:
                times[name]["0"] = END_OF_TIME
        for (name, stream), moved in self._idle().items():
            times[name][stream] = max(moved, times[name].get(stream, gate.BEGINNING))
        instances = {q.name: self.maps[q.name].instances for q in self.plan.subqueries}
        slices = {
            q.name: deal([s for name in q.sources for s in placed.get(name, ())], instances[q.name])
            for q in self.plan.subqueries
            if q.head is None
        }
        state = self.manifest.state
        compact = {n: c for n, s in state.items() if (c := compaction(s, self.maps[n]))}
        return Epoch(number, str(self.checkpoint.root), times, slices, instances, dict(self.maps), state, compact)

    def _take(self, name: str) -> Take:
        source = self._sources[name]
        connector = source.connector
        if not isinstance(connector, NativeSource):
            raise QueryError(
                f"{name} (source)", f"{connector.describe()} cannot be read here", "run the query on Spark"
            )
        position = self.manifest.sources.get(name, SourceState()).position
        take = connector.take(position, self.options.rows_per_epoch, source.ts)
        now = self.options.clock()
        for stream in take.streams:
            self._seen.setdefault((name, stream), now)
        for part in take.slices:
            self._seen[name, part.stream] = now
        return take

    def _idle(self) -> dict[tuple[str, str], int]:
        """Decide which physical streams hold the others back no longer, and up to which time."""
        now = self.options.clock()
        times = {(n, s): t for n, state in self.manifest.sources.items() for s, t in state.times.items()}
        idle = {
            key
            for key, seen in self._seen.items()
            if (limit := self._sources[key[0]].idle_after) is not None
            and now - seen >= limit / 1e6
            and times.get(key, gate.BEGINNING) != END_OF_TIME
        }
        awake = [t for key, t in times.items() if key not in idle and t != END_OF_TIME]
        if not idle or not awake:
            return {}
        upto = min(awake)
        return {key: upto for key in idle if times.get(key, gate.BEGINNING) < upto}

    def _starting_maps(self) -> dict[str, BucketMap]:
        wanted = self.options.instances
        by_name: dict[str, int] = {}
        if isinstance(wanted, Mapping):
            for step, n in wanted.items():
                by_name[self._subquery_of(step)] = n
        maps = {}
        for subquery in self.plan.subqueries:
            before = self.manifest.maps.get(subquery.name)
            n = wanted if isinstance(wanted, int) else by_name.get(subquery.name, before.instances if before else 1)
            maps[subquery.name] = self._map(subquery.name, n, before)
        return maps

    def _map(self, name: str, instances: int, before: BucketMap | None) -> BucketMap:
        """Deal the buckets of a subquery to a number of instances; the map stays as it is if the number does."""
        if instances < 1:
            raise QueryError(f"{name} (subquery)", f"{instances} instances cannot work", "give at least 1")
        buckets = self.plan.subquery(name).buckets or 0
        n = min(instances, buckets) if buckets else instances
        if before is not None and before.instances == n:
            return before
        return BucketMap.even(buckets, n, before.version + 1 if before else 0)

    def _subquery_of(self, step: str) -> str:
        names = [*(q.name for q in self.plan.subqueries), *self.plan.graph.steps]
        if step not in names:
            raise QueryError(
                f"{step} (unknown)", f"the query {self.plan.graph.name!r} has no such step", nearest(step, names)
            )
        return self.plan.subquery(step).name

    # ── committing ────────────────────────────────────────────────────────────────────────────────────────────────

    def _manifest(self, epoch: Epoch, reports: Sequence[Report], started: float) -> Manifest:
        times = gate.later(epoch.times, [r.times for r in reports])
        sources = {}
        for name in self._sources:
            before = self.manifest.sources.get(name, SourceState())
            take = self._takes.get(name)
            counts = [r.sources[name] for r in reports if name in r.sources]
            sources[name] = replace(
                before,
                position=before.position if take is None else take.position,
                times=times.get(name, {}),
                ended=before.ended or (take is not None and take.ended),
                accepted=before.accepted + sum(c["accepted"] for c in counts),
                late=before.late + sum(c["late"] for c in counts),
                rejected=before.rejected + sum(c["rejected"] for c in counts),
            )
        state = {
            q.name: self._state(epoch, q.name, [r for r in reports if r.subquery == q.name])
            for q in self.plan.subqueries
            if q.head
        }
        return Manifest(
            epoch=epoch.number,
            generation=self.lease.generation,
            sources=sources,
            maps=dict(epoch.maps),
            state=state,
            outbox=tuple(sorted((d for r in reports for d in r.outbox), key=lambda d: (d.sink, d.instance, d.file))),
            metrics=self._metrics(epoch, reports, started),
            ended=all(s.ended for s in sources.values()),
        )

    def _state(self, epoch: Epoch, name: str, reports: Sequence[Report]) -> SubqueryState:
        """Work out which segments are alive after the epoch: not rewritten, not replaced, not expired."""
        before = epoch.state.get(name, SubqueryState())
        closed = reports[0].closed
        rewritten = {file for files in epoch.compact.get(name, {}).values() for file in files}
        oldest = _oldest_slot(self.plan, name, closed)

        def alive(segment: Segment) -> bool:
            if segment.kind == "totals":
                return closed == before.closed
            return segment.file not in rewritten and segment.high >= oldest

        new = [s for r in sorted(reports, key=lambda r: r.instance) for s in r.segments]
        return SubqueryState(closed, (*filter(alive, before.segments), *new))

    def _metrics(self, epoch: Epoch, reports: Sequence[Report], started: float) -> dict[str, Any]:
        now = self.options.clock()
        subqueries = {}
        for q in self.plan.subqueries:
            own = sorted((r for r in reports if r.subquery == q.name), key=lambda r: r.instance)
            subqueries[q.name] = {
                "rows_in": [r.rows_in for r in own],
                "rows_out": [r.rows_out for r in own],
                "busy": [round(r.busy, 6) for r in own],
            }
        return {
            "at": now,
            "seconds": round(now - started, 6),
            "rows": sum(
                sum(r.rows_in for r in reports if r.subquery == q.name) for q in self.plan.subqueries if q.head is None
            ),
            "published": sum(d.rows for r in reports for d in r.outbox),
            "backlog": sum(t.backlog for t in self._takes.values()),
            "subqueries": subqueries,
        }

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
            for file in old.files() - set().union(*(m.files() for m in self._kept)):
                (self.checkpoint.root / file).unlink(missing_ok=True)
            self.checkpoint.forget(old.epoch)
        shutil.rmtree(self.checkpoint.root / "outbox" / f"{self.manifest.epoch - 1:09d}", ignore_errors=True)


def _oldest_slot(plan: Plan, name: str, closed: int | None) -> int:
    from springtide.kernels.sliding import Panes
    from springtide.query.windows import Sliding

    head = plan.step(name)
    if closed is None or not isinstance(head, steps.Aggregate) or not isinstance(head.window, Sliding):
        return -(2**63)
    return END_OF_TIME if closed == END_OF_TIME else Panes.of(head.window).first_pane_after(closed)


def identity(plan: Plan) -> dict[str, Any]:
    """Say what a checkpoint must have been made by to be gone on with."""
    described = {
        name: f"{step.kind}: {step.describe()}"
        for name, step in plan.graph.steps.items()
        if not isinstance(step, steps.Source | steps.Sink)
    }
    described |= {name: f"source: {dict(step.schema)}" for name, step in plan.graph.of_kind(steps.Source).items()}
    return {
        "query": plan.graph.name,
        "steps": described,
        "buckets": plan.buckets,
        "hash": fingerprint(),
        "polars": pl.__version__,
    }
