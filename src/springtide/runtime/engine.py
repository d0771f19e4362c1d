"""One query on one checkpoint, as whoever runs it sees it: a façade. What is decided is decided elsewhere, by pure functions; here it is done.

    take slices → plan (pure) → run the tasks → manifest (pure) → commit (atomic) → sinks (idempotent by epoch) → clean up

How tasks run is somebody else's business: on Spark or in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from springtide.compiler.plan import Plan
from springtide.connectors import Owner, Source
from springtide.elastic.decisions import Decision, decisions_of
from springtide.elastic.protocols import ProtocolChoice
from springtide.elastic.resources.local import LocalSlots
from springtide.elastic.resources.resources import Resources
from springtide.elastic.snapshot import Snapshot
from springtide.operators import check_runs
from springtide.query import steps
from springtide.query.errors import SpringtideError
from springtide.query.ids import EpochNumber, Generation
from springtide.runtime.buffers import record
from springtide.runtime.commands import Commands
from springtide.runtime.committing import Batch, manifest_after, with_counts
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.failpoints import failpoint, fails_now
from springtide.runtime.identity import identity, misfit
from springtide.runtime.intake import Intake
from springtide.runtime.ledgers import Ledgers
from springtide.runtime.measuring import metrics_of
from springtide.runtime.observing import Observer
from springtide.runtime.old_owners import with_old_owners
from springtide.runtime.options import Options
from springtide.runtime.patience import Patience
from springtide.runtime.planning import plan_epoch, share_out, unrepeatable
from springtide.runtime.publishing import Publishing
from springtide.runtime.reconfiguration import Reconfiguration
from springtide.runtime.reconfiguring import Reconfiguring
from springtide.runtime.recovering import Recovery, lost
from springtide.runtime.storage import Storage
from springtide.state.bucket_map import BucketMap
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError, LostError
from springtide.state.history import History
from springtide.state.manifest import Manifest
from springtide.state.metrics import EpochMetrics
from springtide.state.stores import Store
from springtide.state.tiers import Tiers

Execute = Callable[[Epoch], Sequence[TaskReport]]
"""Runs the tasks of an epoch and gives their reports."""

_EVENTS = 10
"""Events that a manifest has."""


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
        self.observer = Observer(plan, checkpoint, options, self._resources)
        self._commands = Commands(checkpoint.root, self.note)
        self.patience = Patience(options.patience, self.note, self._commands.told_to_stop, options.timer)
        self._ledgers = Ledgers(lambda: self.storage.tiers)
        self._sources = plan.graph.of_kind(steps.Source)
        self.intake = Intake(
            self._sources, options.rows_per_epoch, options.timer, self.patience, self._ledgers, self.note
        )
        self.storage = self.patience.attempt(
            "restore",
            lambda: Storage(
                checkpoint,
                identity(plan),
                options.durability,
                options.timer,
                self.note,
                options.sighting,
                options.signs,
            ),
        )
        self.publishing = Publishing(plan, self.storage, self.patience, self.note)
        try:
            if (why := misfit(plan, self.manifest)) is not None:
                raise CheckpointError(
                    str(checkpoint.root),
                    f"cannot be read: the manifest of epoch {self.manifest.epoch} is damaged ({why})",
                    "restore that file from a copy, or start with a new checkpoint",
                )
            self.reconfiguring = Reconfiguring(
                Reconfiguration(
                    plan,
                    self.manifest,
                    options.elastic,
                    self._resources.most(),
                    self.observer.past() if options.elastic is not None else (),
                ),
                self._resources,
                self.note,
                self._remember_decision,
                self.observer.now,
            )
            self.reconfiguring.begin(options.instances, options.usual)
        except BaseException:
            self.storage.release()
            raise

    def begin(self) -> None:
        """Open the sources, ask the sinks, make whole what the last run left, and publish what it may not have published."""
        self.intake.open(self._owner)
        self.publishing.open()
        self.patience.attempt("restore", lambda: self.storage.begin(self._recover))
        self.publishing.begin()
        self._release()

    def _owner(self, source: str) -> Owner:
        """Say to a source whose run it is."""
        return Owner(
            self.plan.graph.name,
            source,
            self.storage.lineage,
            self.storage.lease.generation,
            self.manifest.epoch,
            kind="source",
            schema=self._sources[source].columns,
            note=lambda text: self.note(f"step {source} (source): {text}"),
        )

    def _release(self) -> None:
        """Tell the sources what will not be read again."""
        if (durable := self.storage.durable) is not None:
            self.intake.committed(durable.epoch, durable.sources)

    def close(self) -> None:
        """Make the state durable, and let the checkpoint go."""
        try:
            self._resources.close()
            try:
                self.publishing.close()
            except SpringtideError as error:  # the sinks have the rows; the next start finds out by itself
                self.note(str(error))
            try:
                self.storage.close(stopped=self._commands.is_ending)
            except Exception as error:
                self._commands.ended(self.manifest.epoch, str(error))
                raise
            self._commands.ended(self.manifest.epoch)
            self._release()
        finally:
            self.intake.close()

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def root(self) -> Path:
        """The folder of the checkpoint."""
        return self.checkpoint.root

    @property
    def store(self) -> Store:
        """Where the checkpoint is."""
        return self.checkpoint.store

    @property
    def tiers(self) -> Tiers:
        """Where its files are: disk, memory, a store."""
        return self.storage.tiers

    @property
    def manifest(self) -> Manifest:
        """The last epoch that was committed."""
        return self.storage.manifest

    @property
    def maps(self) -> dict[str, BucketMap]:
        """The bucket maps of the next epoch."""
        return self.reconfiguring.maps

    @property
    def events(self) -> list[tuple[float, str]]:
        """When, and what: changes of instances, refusals, losses."""
        return self.observer.events

    @property
    def snapshot(self) -> Snapshot | None:
        """What the last epoch of this run was like."""
        return self.observer.snapshot

    @property
    def history(self) -> History:
        """What was measured and decided since the checkpoint began."""
        return self.observer.history

    def snapshots(self) -> list[Snapshot]:
        """Return the measurements of the epochs that the checkpoint remembers, oldest first."""
        return [Snapshot.from_json(found) for found in self.history.read("snapshots")]

    def decisions(self, last: int | None = None) -> list[Decision]:
        """Return what was changed since the checkpoint began, why, and what it cost, oldest first; or only the `last` ones."""
        found = decisions_of(self.history.read("decisions", None if last is None else 4 * last))
        return found if last is None else found[-last:]

    def note(self, text: str) -> None:
        """Remember something that people may want to know."""
        self.observer.note(text)

    # ── what people ask for ───────────────────────────────────────────────────────────────────────────────────────

    def take_commands(self) -> bool:
        """Do what the control folder asks for, from the next epoch on; return whether the run is to stop."""
        return self._commands.take(self.reconfiguring)

    @property
    def is_told_to_stop(self) -> bool:
        """Whether somebody wanted the run to stop while it waited for something: what failed then does not count as a failure."""
        return self._commands.stopped

    def wait_no_longer(self) -> None:
        """Wait for nothing that fails any more: the run is to stop. For another thread."""
        self.patience.end()

    def scale(self, step: str, instances: int, protocol: ProtocolChoice | None = None) -> None:
        """Give the subquery of a step another number of instances, from the next epoch on."""
        self.reconfiguring.scale(step, instances, protocol)

    def move(self, step: str, buckets: Sequence[int], to: int, protocol: ProtocolChoice | None = None) -> None:
        """Give some buckets of a step to one of its instances, from the next epoch on."""
        self.reconfiguring.move(step, buckets, to, protocol)

    def rebalance(self, step: str, protocol: ProtocolChoice | None = None) -> None:
        """Even out the load of a step's instances, from the next epoch on."""
        self.reconfiguring.rebalance(step, protocol)

    def pause_elasticity(self) -> None:
        """Let the manager decide nothing until `resume_elasticity`."""
        self.reconfiguring.pause()

    def resume_elasticity(self) -> None:
        """Let the manager decide again."""
        self.reconfiguring.resume()

    def attach(self, source: str, label: str, connector: Source) -> None:
        """Let a source read another input too, from the next epoch on (ST-3)."""
        self.intake.attach(source, label, connector, self.manifest.sources)

    def detach(self, source: str, label: str) -> None:
        """Stop reading an attached input (ST-3)."""
        self.intake.detach(source, label)

    def checkpoint_now(self) -> int:
        """Make the state durable before anything else happens; return the epoch that it is of."""
        return self.storage.make_durable()

    # ── what Spark reads ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def reads(self) -> bool:
        """Whether any source is read in Python."""
        return self.intake.reads

    def spark_waits(self, rows: Mapping[str, int]) -> None:
        """Hear how many rows are there, by source, that were in no micro-batch yet."""
        self.intake.waiting = dict(rows)

    def spark_has_nothing(self) -> None:
        """Hear that Spark has looked just now, and that there were no rows."""
        self.intake.nothing_new()

    # ── one epoch ─────────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Return whether an epoch now would do anything: new rows, an end, or time that moves on."""
        return self.intake.look(self.manifest.sources)

    def run(self, batch: Batch | None = None) -> Manifest:
        """Run the next epoch to the end: of what `has_work` saw, and of Spark's micro-batch `batch` if there is one.

        An epoch without a micro-batch leaves Spark's sources where the last one left them.
        """
        with self.options.spans.span("epoch", epoch=self.manifest.epoch + 1):
            return self._run(batch)

    def _run(self, batch: Batch | None) -> Manifest:
        span = self.options.spans.span
        self.reconfiguring.prepare()
        started = self.options.timer()
        failpoint("before-job")
        with span("run"):
            epoch, reports, manifest = self.patience.attempt(
                f"epoch {self.manifest.epoch + 1}", lambda: self._perform(started, batch)
            )
            self.options.spans.tasks(reports)
        failpoint("after-job")
        if self.intake.fails and fails_now(self.root, epoch.number):
            raise SpringtideError("a test wanted the run to fail here")
        with span("commit"):
            self.patience.attempt("commit", lambda: self.storage.commit(manifest))
        failpoint("after-manifest")
        self._commands.committed(manifest, self.reconfiguring)
        self.reconfiguring.committed(manifest)
        if batch is not None:
            self.intake.micro_batch(started, [r.times for r in reports])
        backlogs = self.intake.backlogs()
        self.intake.done()
        with span("publish"):
            self.publishing.publish()
        failpoint("after-publish")
        with span("settle"):
            self.patience.attempt("checkpoint", self.storage.settle)
            self._release()
        failpoint("after-clean")
        snapshot = self.observer.epoch(epoch, reports, self.manifest, self.storage, started, backlogs)
        self.reconfiguring.measured(snapshot)
        return manifest

    def _perform(self, started: float, batch: Batch | None) -> tuple[Epoch, Sequence[TaskReport], Manifest]:
        """Run the tasks of an epoch; if state is lost, rebuild it first. Tasks that fail for want of it are run again."""
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

    def _performed(self, started: float, batch: Batch | None) -> tuple[Epoch, Sequence[TaskReport], Manifest]:
        """Plan an epoch, run its tasks, and return what was planned, what they say, and the manifest that is to be committed."""
        before, storage = self.manifest, self.storage
        taken, owned = self.intake.plan(before.sources), self.reconfiguring.ownership(before)
        given = share_out(self.plan, owned.maps, taken)
        always = self.options.durability.buffer
        buffered = unrepeatable(self.plan, given.slices, always=always) if storage.in_background else frozenset[str]()
        live = with_old_owners(self.plan, tuple(owned.old_owners))
        epoch = plan_epoch(live, EpochNumber(before.epoch + 1), storage.tiers, given, owned, buffered=buffered)
        reports = self._execute(epoch)
        sources = with_counts(self.intake.after(before.sources, epoch, reports), epoch, reports)
        log = record(epoch, reports, idle=taken.idle) if storage.in_background else None
        manifest = manifest_after(
            before,
            live,
            epoch,
            reports,
            generation=Generation(storage.lease.generation),
            sources=self._ledgers.settled(sources),
            batch=batch,
            metrics=self._metrics(reports, started),
            elastic=self.reconfiguring.remembered(),
            log=log,
        )
        if storage.in_background and manifest.old_owners != before.old_owners:
            # A window recreation begins or ends: no replay crosses that, so it happens only when its state is durable.
            storage.make_durable(manifest)
        return epoch, reports, manifest

    def _metrics(self, reports: Sequence[TaskReport], started: float) -> EpochMetrics:
        return metrics_of(
            self.plan,
            reports,
            at=self.observer.now(),
            seconds=self.options.timer() - started,
            backlog=self.intake.backlog,
            events=self.events[-_EVENTS:],
        )

    def _remember_decision(self, decision: dict[str, Any]) -> None:
        self.observer.decision(self.storage.lease.generation, decision)
        if "done" in decision:
            self._commands.measured(decision)

    def _recover(self) -> None:
        """Rebuild lost state: restore, partition, replay (SE-3). The epoch stays the same; its state is in other files."""
        started, tiers = self.options.timer(), self.storage.tiers
        gone = lost(tiers, self.manifest)
        whose = ", ".join(dict.fromkeys(s.subquery for s in gone))
        self.note(f"{len(gone)} segments of {whose} are lost: their state is being rebuilt")
        fixed = {n for n, m in self.maps.items() if self.manifest.maps.get(n) != m}
        degree, limit = self.options.durability.degree, self.options.rows_per_epoch
        manifest = Recovery(self.plan, tiers, self._execute, degree, limit).run(self.storage.kept, fixed)
        self.storage.replace(manifest)
        self.reconfiguring.recovered(manifest, fixed)
        self.note(f"the state of {whose} is whole again after {self.options.timer() - started:.2f} s")
