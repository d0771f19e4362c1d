"""The driver's part of an epoch: plan it, have it run, commit it, publish it.

    take slices → run the tasks → manifest (atomic) → sinks (idempotent by epoch) → clean up

How tasks run is somebody else's business: on Spark or in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from springtide.compiler.plan import Plan
from springtide.elastic.protocols import Wish
from springtide.elastic.resources.local import LocalSlots
from springtide.elastic.resources.resources import Resources
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.kernels import gate
from springtide.kernels.slices import NativeSource, Slice
from springtide.query import steps
from springtide.query.errors import SpringtideError
from springtide.runtime.buffers import cannot_be_read_again, record
from springtide.runtime.clocks import SteadyClock
from springtide.runtime.commands import Commands
from springtide.runtime.durability import Durability
from springtide.runtime.epoch import Epoch, Report, compaction, deal
from springtide.runtime.failpoints import failpoint
from springtide.runtime.heads import check_runs, head_of
from springtide.runtime.heads.sliding import CLOSED
from springtide.runtime.identity import identity
from springtide.runtime.intake import Intake
from springtide.runtime.ledgers import Ledgers
from springtide.runtime.measuring import measure
from springtide.runtime.outcome import state_after
from springtide.runtime.patience import Patience
from springtide.runtime.publishing import Publishing
from springtide.runtime.reconfiguring import Reconfiguring
from springtide.runtime.recovering import Recovery, lost
from springtide.runtime.shadows import shadow_of, with_shadows
from springtide.runtime.storage import Storage
from springtide.state.accounts import SINK, SOURCE, add
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import LostError
from springtide.state.history import History, Kind
from springtide.state.manifest import BucketMap, Manifest, SourceState, SubqueryState
from springtide.state.segment import BucketSizes

ROWS_PER_EPOCH = 4_000_000

Execute = Callable[[Epoch], Sequence[Report]]
"""Runs the tasks of an epoch and gives their reports."""


@dataclass(frozen=True)
class Batch:
    """A micro-batch of Spark, where Spark reads a source."""

    number: int
    offsets: str | None = None
    """A digest of what Spark wrote down of it: another micro-batch with the same number has another one."""


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
    durability: Durability = field(default_factory=Durability)
    """When state is made durable, and where."""
    patience: float = 0.0
    """Seconds for which what fails because something outside is not there is tried again."""
    clock: Callable[[], float] = field(default=time.time)
    """The time of day, for people, and for how long rows waited."""
    timer: Callable[[], float] = field(default=time.monotonic)
    """What everything else is timed with: it never goes back, and nobody sets it."""


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
        self._sizes = BucketSizes(lambda segment: self.storage.tiers.nearest(segment))
        self._now = SteadyClock(options.clock, options.timer)
        self._commands = Commands(checkpoint.root, self.note)
        self.patience = Patience(options.patience, self.note, self._commands.told_to_stop, options.timer)
        self._ended_at = options.timer()
        self._started_at: float | None = None
        self._backlogs: dict[str, int] = {}
        self.snapshot: Snapshot | None = None
        """What the last epoch of this run was like."""
        self._sources = plan.graph.of_kind(steps.Source)
        self._ledgers = Ledgers(lambda: self.storage.tiers)
        self.intake = Intake(
            self._sources, options.rows_per_epoch, options.timer, self.patience, self._ledgers, self.note
        )
        self.events: list[tuple[float, str]] = []
        """When, and what: scalings, refusals."""
        self.storage = self.patience.attempt(
            "restore", lambda: Storage(checkpoint, identity(plan), options.durability, options.timer, self.note)
        )
        self.publishing = Publishing(plan, self.storage, self.patience, self.note)
        try:
            self.reconfiguring = Reconfiguring(
                plan,
                self.manifest,
                options.elastic,
                self._resources,
                self.note,
                self._remember_decision,
                self._now,
            )
            self.reconfiguring.begin(options.instances, options.usual)
        except BaseException:
            self.storage.lease.release()
            raise

    def begin(self) -> None:
        """Ask the sinks, make whole what the last run left, and publish what it may not have published."""
        self.publishing.open()
        self.patience.attempt("restore", lambda: self.storage.begin(self._recover))
        self.publishing.begin()

    def close(self) -> None:
        """Make the state durable, and let the checkpoint go."""
        self._resources.close()
        try:
            self.publishing.close()
        except SpringtideError as error:  # the sinks have the rows; the next start finds out by itself
            self.note(str(error))
        self.storage.close()

    @property
    def manifest(self) -> Manifest:
        """The last epoch that was committed."""
        return self.storage.manifest

    @property
    def maps(self) -> dict[str, BucketMap]:
        """The bucket maps of the next epoch."""
        return self.reconfiguring.maps

    # ── for people ────────────────────────────────────────────────────────────────────────────────────────────────

    def take_commands(self) -> bool:
        """Do what the control folder asks for, from the next epoch on; True when the run is to stop."""
        return self._commands.take(self.reconfiguring)

    @property
    def is_told_to_stop(self) -> bool:
        """Tell whether somebody wanted the run to stop while it waited for something: what failed then is no failure."""
        return self._commands.stopped

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

    def run(self, batch: Batch | None = None) -> Manifest:
        """Run the next epoch to the end: of what `has_work` saw, and of Spark's micro-batch `batch` if there is one.

        An epoch without a micro-batch leaves Spark's sources where the last one left them.
        """
        self.reconfiguring.prepare()
        started = self.options.timer()
        failpoint("before-job")
        epoch, reports, manifest = self.patience.attempt(
            f"epoch {self.manifest.epoch + 1}", lambda: self._perform(started, batch)
        )
        failpoint("after-job")
        if self.intake.fails and self._fail_once(epoch.number):
            raise SpringtideError("a test wanted the run to fail here")
        self.patience.attempt("commit", lambda: self.storage.commit(manifest))
        failpoint("after-manifest")
        self._commands.done()
        self.reconfiguring.committed(manifest)
        if batch is not None:
            self.intake.micro_batch(started, [r.times for r in reports])
        backlogs, self._backlogs = self._backlogs, self.intake.backlogs()
        self.intake.done()
        self.publishing.publish()
        failpoint("after-publish")
        self.patience.attempt("checkpoint", self.storage.settle)
        failpoint("after-clean")
        self._measure(epoch, reports, started, backlogs)
        return manifest

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
        number = self.manifest.epoch + 1
        greatest = self.intake.greatest(self.manifest.sources)
        windows: dict[str, tuple[int | None, int | None]] = {}
        for name, last in shadows.items():
            windows |= {shadow_of(name): (None, last), name: (last + 1, None)}
        maps = {name: self.maps[name] for name in instances}
        return Epoch(
            number,
            self.storage.tiers,
            times,
            greatest,
            slices,
            instances,
            maps,
            state,
            compact,
            tuple(shadows),
            windows,
            self._buffered(slices) if self.storage.in_background else frozenset(),
            former=self.reconfiguring.former(state),
        )

    def _buffered(self, slices: Mapping[str, Sequence[Sequence[Slice]]]) -> frozenset[str]:
        """Name the prefixes whose input cannot be read again."""
        read_by_spark = {n for n, s in self._sources.items() if not isinstance(s.connector, NativeSource)}
        return frozenset(
            q.name
            for q in self.plan.subqueries
            if q.name in slices
            and (
                self.options.durability.buffer
                or read_by_spark.intersection(q.sources)
                or cannot_be_read_again(slices[q.name])
            )
        )

    # ── committing ────────────────────────────────────────────────────────────────────────────────────────────────

    def _manifest(self, epoch: Epoch, reports: Sequence[Report], started: float, batch: Batch | None) -> Manifest:
        times = gate.later(epoch.times, [r.times for r in reports])
        greatest = gate.greatest(epoch.greatest, [r.greatest for r in reports])
        sources = {}
        for name in self._sources:
            before = self.manifest.sources.get(name, SourceState())
            counts = [r.sources[name] for r in reports if name in r.sources]
            sources[name] = replace(
                self.intake.after(name, before, times.get(name, {}), [r.topics.get(name, {}) for r in reports]),
                greatest=greatest.get(name, gate.BEGINNING),
                accepted=before.accepted + sum(c["accepted"] for c in counts),
                late=before.late + sum(c["late"] for c in counts),
                rejected=before.rejected + sum(c["rejected"] for c in counts),
            )
        live = with_shadows(self.plan, epoch.shadows)
        state = {q.name: state_after(live, epoch, q.name, reports) for q in live.subqueries if q.head}
        shadows = {
            n: last for n, last in self.reconfiguring.shadows.items() if not _finished(state[shadow_of(n)], last)
        }
        gone = {shadow_of(name) for name in epoch.shadows if name not in shadows}
        outbox = sorted((d for r in reports for d in r.outbox), key=lambda d: (d.sink, d.instance, d.file))
        return Manifest(
            epoch=epoch.number,
            generation=self.storage.lease.generation,
            sources=self._ledgers.settled(sources),
            maps={name: bucket_map for name, bucket_map in epoch.maps.items() if name not in gone},
            state={name: stored for name, stored in state.items() if name not in gone},
            outbox=tuple(outbox),
            metrics=self._metrics(reports, started),
            elastic=self.reconfiguring.manager.to_json() if self.reconfiguring.manager else {},
            shadows=shadows,
            ended=all(s.ended for s in sources.values()),
            batch=batch.number if batch else self.manifest.batch,
            offsets=batch.offsets if batch else self.manifest.offsets,
            log=self._log(epoch, reports) if self.storage.in_background else None,
            accounts=self._accounts(reports),
        )

    def _accounts(self, reports: Sequence[Report]) -> dict[str, dict[str, int]]:
        """Add what became of this epoch's rows to the totals."""
        read = [{f"{SOURCE} {name}": counts for name, counts in r.sources.items()} for r in reports]
        written = [{f"{SINK} {d.sink}": {"written": d.rows}} for r in reports for d in r.outbox]
        return add(self.manifest.accounts, *read, *(r.accounts for r in reports), *written)

    def _log(self, epoch: Epoch, reports: Sequence[Report]) -> dict[str, Any]:
        return record(epoch, reports, idle=self.intake.idle(self.manifest.sources)) | {
            "memory": self.storage.tiers.memory
        }

    def _metrics(self, reports: Sequence[Report], started: float) -> dict[str, Any]:
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
            "at": self._now(),
            "seconds": round(self.options.timer() - started, 6),
            "rows": rows,
            "published": sum(d.rows for r in reports for d in r.outbox),
            "backlog": self.intake.backlog,
            "subqueries": subqueries,
            "events": self.events[-10:],
        }

    def _measure(self, epoch: Epoch, reports: Sequence[Report], started: float, before: Mapping[str, int]) -> None:
        """Measure the epoch that is done, remember it, and hear what is to change."""
        now = self.options.timer()
        self.snapshot = measure(
            self.plan,
            epoch,
            reports,
            self.manifest,
            now=self._now(),
            clock=self.options.clock(),
            seconds=round(now - started, 6),
            period=round(now - self._ended_at, 6),
            between=None if self._started_at is None else round(started - self._started_at, 6),
            backlogs={name: (before.get(name, 0), after) for name, after in self._backlogs.items()},
            bucket_bytes={
                q.name: self._sizes.of(self.manifest.state[q.name].segments, q.buckets or 1)
                for q in self.plan.subqueries
                if q.head
            },
            slots=self._resources.slots(),
            executors=self._resources.executors(),
        )
        self._ended_at, self._started_at = now, started
        self._write_down("snapshots", self.snapshot.to_json())
        self.reconfiguring.measured(self.snapshot)

    def _remember_decision(self, record: dict[str, Any]) -> None:
        self._write_down("decisions", {"at": self.options.clock()} | record)

    def _write_down(self, kind: Kind, record: dict[str, Any]) -> None:
        """Add to the history. A query needs none of it to go on: on a full disk it goes on without."""
        try:
            self.history.append(kind, self.storage.lease.generation, record)
        except OSError as error:
            self.note(f"the history could not be written: {error}")

    def _fail_once(self, number: int) -> bool:
        """Remember, next to the checkpoint, that a test's failure has happened."""
        marker = self.checkpoint.root / "control" / f"failed-{number}"
        if marker.exists():
            return False
        marker.parent.mkdir(exist_ok=True)
        marker.touch()
        return True

    # ── recovering ────────────────────────────────────────────────────────────────────────────────────────────────

    def checkpoint_now(self) -> int:
        """Make the state durable before anything else happens; give the epoch that it is of."""
        return self.storage.make_durable()

    def _perform(self, started: float, batch: Batch | None) -> tuple[Epoch, Sequence[Report], Manifest]:
        """Run the tasks of an epoch; if state is lost, make it anew first. Tasks that fail for want of it are run again."""
        if not (self.storage.in_background and self.storage.has_lost(quickly=True)):
            try:
                return self._performed(started, batch)
            except Exception as error:
                if not self.storage.has_lost():
                    if not isinstance(error, LostError):
                        raise
                    return self._performed(started, batch)  # by now a checkpoint has brought it to the disk
        self._recover()
        return self._performed(started, batch)

    def _performed(self, started: float, batch: Batch | None) -> tuple[Epoch, Sequence[Report], Manifest]:
        epoch = self._plan()
        reports = self._execute(epoch)
        manifest = self._manifest(epoch, reports, started, batch)
        if self.storage.in_background and manifest.shadows != self.manifest.shadows:
            # A window recreation begins or ends: no replay crosses that, so it happens only when its state is durable.
            self.storage.make_durable(manifest)
        return epoch, reports, manifest

    def _recover(self) -> None:
        """Make lost state anew: restore, partition, replay (SE-3). The epoch stays the same; its state is in other files."""
        started, tiers = self.options.timer(), self.storage.tiers
        gone = lost(tiers, self.manifest)
        whose = ", ".join(dict.fromkeys(s.subquery for s in gone))
        self.note(f"{len(gone)} segments of {whose} are lost: their state is being made anew")
        fixed = {n for n, m in self.maps.items() if self.manifest.maps.get(n) != m}
        degree, limit = self.options.durability.degree, self.options.rows_per_epoch
        manifest = Recovery(self.plan, tiers, self._execute, degree, limit).run(self.storage.kept, fixed)
        self.storage.replace(manifest)
        self.reconfiguring.recovered(manifest, fixed)
        self.note(f"the state of {whose} is whole again after {self.options.timer() - started:.2f} s")


def _finished(old: SubqueryState, last: int) -> bool:
    """Tell whether old owners have given all windows up to the last of theirs."""
    return old.marks.get(CLOSED, gate.BEGINNING) >= last
