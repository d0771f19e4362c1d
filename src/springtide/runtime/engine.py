"""One query on one checkpoint, as its caller sees it: a façade. Decisions are made elsewhere, by pure functions; here they are carried out.

    take slices → plan (pure) → run the tasks → manifest (pure) → commit (atomic) → sinks (idempotent by epoch) → clean up

How tasks run, on Spark or in this process, is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from springtide.compiler.plan import Plan
from springtide.connectors import Owner, Source
from springtide.elastic.decisions import Decision, decisions_of
from springtide.elastic.protocols import ProtocolChoice
from springtide.elastic.resources.local import LocalSlots
from springtide.elastic.resources.resources import Resources
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.operators import check_runs
from springtide.query import steps
from springtide.query.errors import SpringtideError, TakenBackError
from springtide.query.ids import EpochNumber, Generation
from springtide.query.plurals import plural
from springtide.runtime.backfilling import Backfill
from springtide.runtime.buffers import record
from springtide.runtime.commands import Commands
from springtide.runtime.committing import Batch, manifest_after, with_counts
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.failpoints import failpoint, fails_now
from springtide.runtime.form import Execute, Form
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
from springtide.runtime.replacing import Replacement, with_history
from springtide.runtime.replicas.publishing import SharedPublishing
from springtide.runtime.replicas.replica import Replica, refuse_alone
from springtide.runtime.storage import Storage
from springtide.runtime.swapping import Swap, fitting, keep_in_savepoint, refuse_replica
from springtide.state.bucket_map import BucketMap
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError, LostError
from springtide.state.history import History
from springtide.state.manifest import Manifest
from springtide.state.metrics import EpochMetrics
from springtide.state.stores import Store
from springtide.state.tiers import Tiers

Work = tuple[Epoch, Sequence[TaskReport], Manifest]
"""An epoch whose tasks are done: the planned epoch, the reports of its tasks, and the manifest to commit."""

_EVENTS = 10
"""The number of events that a manifest keeps."""


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
        """Take the checkpoint, and continue where it ends."""
        check_runs(plan)
        self.checkpoint, self.options = checkpoint, options
        self._resources = resources or LocalSlots()
        self._begins: Manifest | None = None
        """What the next epoch begins with if that is not the last manifest: while the query is being replaced."""
        self._failure: BaseException | None = None
        """The error that occurred during or after the commit of a new form's first epoch: this run cannot continue."""
        self.said: Callable[[BaseException], str] = str
        """Finds the line that matters in the error that tasks failed with."""
        self.reload: Callable[[], Manifest] | None = None
        """Reads the query's file again and replaces the query, if there is such a file."""
        self.observer = Observer(plan, checkpoint, options, self._resources)
        self._commands = Commands(checkpoint.root, self.note)
        self.patience = Patience(options.patience, self.note, self._commands.told_to_stop, options.timer)
        ledgers = Ledgers(lambda: self.storage.tiers)
        self._replica = (
            Replica(options.replica, plan, self.patience, options.timer, self.note) if options.replica else None
        )
        intake = self._intake(plan, ledgers)  # before the storage: it measures how long streams are silent
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
        try:
            if self._replica is None:
                refuse_alone(self.storage)
            if (why := misfit(plan, self.manifest)) is not None:
                raise CheckpointError(
                    str(checkpoint.root),
                    f"cannot be read: the manifest of epoch {self.manifest.epoch} is damaged ({why})",
                    "restore that file from a copy, or start with a new checkpoint",
                )
            past = self.observer.past() if options.elastic is not None else ()
            decisions = Reconfiguration(plan, self.manifest, options.elastic, self._resources.most(), past)
            reconfiguring = Reconfiguring(
                decisions, self._resources, self.note, self._remember_decision, self.observer.now
            )
            publishing = self._publishing(plan)
            self.form = Form(plan, execute, intake, ledgers, publishing, reconfiguring, options.elastic)
            self.reconfiguring.begin(options.instances, options.usual)
        except BaseException:
            self.storage.release()
            raise

    def begin(self) -> None:
        """Open the sources and the sinks, repair what the last run left, and publish what it may not have published."""
        if self._replica is not None:
            self._replica.join(self.storage)
        self.intake.open(self._owner)
        self.publishing.open()
        self.patience.attempt("restore", lambda: self.storage.begin(self._recover))
        self.publishing.begin()
        self._release()

    def _owner(self, source: str) -> Owner:
        """Return the owner, which tells a source whose run this is."""
        return Owner(
            self.plan.graph.name,
            source,
            self.storage.lineage,
            self.storage.lease.generation,
            self.manifest.epoch,
            kind="source",
            note=lambda text: self.note(f"step {source} (source): {text}"),
        )

    def _intake(self, plan: Plan, ledgers: Ledgers) -> Intake:
        sources, options = plan.graph.of_kind(steps.Source), self.options
        return Intake(sources, options.rows_per_epoch, options.timer, self.patience, ledgers, self.note, self._replica)

    def _publishing(self, plan: Plan) -> Publishing:
        if self._replica is None:
            return Publishing(plan, self.storage, self.patience, self.note)
        return SharedPublishing(plan, self.storage, self.patience, self.note, self._replica, self.options.timer)

    def _release(self) -> None:
        """Tell the sources which input will not be read again."""
        if (durable := self.storage.durable) is not None and self._replica is None:  # other replicas may still read it
            self.intake.committed(durable.epoch, durable.sources)

    def close(self) -> None:
        """Make the state durable, and release the checkpoint."""
        try:
            self._resources.close()
            try:
                self.publishing.close()
            except SpringtideError as error:  # the sinks have the rows, and the next start will notice that
                self.note(str(error))
            if self._replica is not None:
                self._replica.leave(self.manifest)
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
    def plan(self) -> Plan:
        """The plan that runs."""
        return self.form.plan

    @property
    def intake(self) -> Intake:
        """Its sources."""
        return self.form.intake

    @property
    def publishing(self) -> Publishing:
        """Its sinks."""
        return self.form.publishing

    @property
    def reconfiguring(self) -> Reconfiguring:
        """Who owns which bucket, now and next."""
        return self.form.reconfiguring

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
        """The manifest of the last committed epoch."""
        return self.storage.manifest

    @property
    def maps(self) -> dict[str, BucketMap]:
        """The bucket maps of the next epoch."""
        return self.reconfiguring.maps

    @property
    def events(self) -> list[tuple[float, str]]:
        """Events with their times: changes of instances, refusals, losses."""
        return self.observer.events

    @property
    def snapshot(self) -> Snapshot | None:
        """The measurements of the last epoch of this run."""
        return self.observer.snapshot

    @property
    def history(self) -> History:
        """What has been measured and decided since the checkpoint began."""
        return self.observer.history

    def snapshots(self) -> list[Snapshot]:
        """Return the measurements of the epochs that the checkpoint remembers, oldest first."""
        return [Snapshot.from_json(found) for found in self.history.read("snapshots")]

    def decisions(self, last: int | None = None) -> list[Decision]:
        """Return what has changed since the checkpoint began, why, and what it cost, oldest first; or only the `last` ones."""
        found = decisions_of(self.history.read("decisions", None if last is None else 4 * last))
        return found if last is None else found[-last:]

    def note(self, text: str) -> None:
        """Remember something that people may want to know."""
        self.observer.note(text)

    # ── what people ask for ───────────────────────────────────────────────────────────────────────────────────────

    def take_commands(self) -> bool:
        """Carry out the commands in the control folder, from the next epoch on; return whether the run should stop."""
        return self._commands.take(self.reconfiguring, self.reload)

    @property
    def is_told_to_stop(self) -> bool:
        """Whether the run was told to stop while it waited for something: what failed then does not count as a failure."""
        return self._commands.stopped

    def wait_no_longer(self) -> None:
        """Stop waiting for whatever fails, because the run is to stop. Called from another thread."""
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
        """Keep the manager from deciding anything until `resume_elasticity`."""
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
        """Make the state durable before anything else happens; return its epoch."""
        return self.storage.make_durable()

    # ── what Spark reads ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def reads(self) -> bool:
        """Whether any source is read in Python."""
        return self.intake.reads

    def spark_waits(self, rows: Mapping[str, int]) -> None:
        """Take note of how many rows, by source, have not been in a micro-batch yet."""
        self.intake.waiting = dict(rows)

    def spark_has_nothing(self) -> None:
        """Take note that Spark has just looked, and that there were no rows."""
        self.intake.nothing_new()

    # ── one epoch ─────────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Return whether an epoch would do anything now: there are new rows, an input has ended, or time moves on."""
        if self._failure is not None:
            raise self._failure
        return self.intake.look(self._before.sources, self._before.epoch + 1)

    def run(self, batch: Batch | None = None) -> Manifest:
        """Run the next epoch to the end, with what `has_work` saw and with Spark's micro-batch `batch` if there is one.

        An epoch without a micro-batch leaves Spark's sources where the last one left them.
        """
        with self.options.spans.span("epoch", epoch=self.manifest.epoch + 1):
            return self._run(batch)

    def _run(self, batch: Batch | None) -> Manifest:
        self.reconfiguring.prepare()
        started = self.options.timer()
        return self._finish(self._work(started, batch), started, batch)

    def _work(self, started: float, batch: Batch | None = None) -> Work:
        """Run the tasks of the next epoch; nothing is committed yet."""
        failpoint("before-job")
        with self.options.spans.span("run"):
            work = self.patience.attempt(f"epoch {self.manifest.epoch + 1}", lambda: self._perform(started, batch))
            self.options.spans.tasks(work[1])
        failpoint("after-job")
        if self.intake.fails and fails_now(self.root, work[0].number):
            raise SpringtideError("a test wanted the run to fail here")
        return work

    def _finish(self, work: Work, started: float, batch: Batch | None = None) -> Manifest:
        """Commit an epoch whose tasks are done, and publish it."""
        span, (epoch, reports, manifest) = self.options.spans.span, work
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
        if self._replica is not None:
            self._replica.report(manifest)
        failpoint("after-publish")
        with span("settle"):
            self.patience.attempt("checkpoint", self.storage.settle)
            self._release()
        failpoint("after-clean")
        snapshot = self.observer.epoch(epoch, reports, self.manifest, self.storage, started, backlogs)
        self.reconfiguring.measured(snapshot)
        return manifest

    @property
    def _before(self) -> Manifest:
        """What the next epoch begins with."""
        return self._begins or self.manifest

    def _perform(self, started: float, batch: Batch | None) -> Work:
        """Run the tasks of an epoch; if state is lost, rebuild it first. Tasks that fail because state is missing are run again."""
        if self._begins is not None:
            return self._performed(started, batch)  # another form must not rebuild what this one has lost
        if not (self.storage.in_background and self.storage.has_lost(quickly=True)):
            try:
                return self._performed(started, batch)
            except Exception as error:
                if not self.storage.has_lost():
                    if not isinstance(error, LostError):
                        raise
                    return self._performed(started, batch)  # by now a checkpoint has written it to the disk
        self._recover()
        return self._performed(started, batch)

    def _performed(self, started: float, batch: Batch | None) -> Work:
        """Plan an epoch, run its tasks, and return the planned epoch, the reports of its tasks, and the manifest to commit."""
        before, storage = self._before, self.storage
        taken, owned = self.intake.plan(before.sources), self.reconfiguring.ownership(before)
        given = share_out(self.plan, owned.maps, taken)
        always = self.options.durability.buffer
        buffered = unrepeatable(self.plan, given.slices, always=always) if storage.in_background else frozenset[str]()
        live = with_old_owners(self.plan, tuple(owned.old_owners))
        number, digested = EpochNumber(before.epoch + 1), self._replica is not None
        epoch = plan_epoch(live, number, storage.tiers, given, owned, buffered=buffered, digested=digested)
        reports = self.form.execute(epoch)
        sources = with_counts(self.intake.after(before.sources, epoch, reports), epoch, reports)
        log = record(epoch, reports, idle=taken.idle) if storage.in_background else None
        manifest = manifest_after(
            before,
            live,
            epoch,
            reports,
            generation=Generation(storage.lease.generation),
            sources=self.form.ledgers.settled(sources),
            batch=batch,
            metrics=self._metrics(reports, started),
            elastic=self.reconfiguring.remembered(),
            log=log,
        )
        if storage.in_background and (manifest.old_owners != before.old_owners or manifest.form != self.manifest.form):
            # A window recreation begins or ends, or the query is replaced: no replay may cross that, so the state must be durable first.
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
        """Rebuild lost state: restore, partition, replay (SE-3). The epoch stays the same, but its state is in other files."""
        started, tiers = self.options.timer(), self.storage.tiers
        gone = lost(tiers, self.manifest)
        whose = ", ".join(dict.fromkeys(s.subquery for s in gone))
        self.note(f"lost {plural(len(gone), 'segment')} of {whose}: the state is being rebuilt")
        fixed = {n for n, m in self.maps.items() if self.manifest.maps.get(n) != m}
        degree, limit = self.options.durability.degree, self.options.rows_per_epoch
        manifest = Recovery(self.plan, tiers, self.form.execute, degree, limit).run(self.storage.kept, fixed)
        self.storage.replace(manifest)
        self.reconfiguring.recovered(manifest, fixed)
        self.note(f"the state of {whose} is whole again after {self.options.timer() - started:.2f} s")

    # ── another form ──────────────────────────────────────────────────────────────────────────────────────────────

    def backfill(self, names: Sequence[str], new: Plan, part: Plan, execute: Execute) -> Backfill:
        """Begin to build the state of steps of a new form from the history of their sources; refuse what cannot be. Nothing changes.

        `part` is as much of that form as leads to them, and `execute` runs its tasks.
        """
        self._check_replaceable(new)
        fitting(self.form, new, self.manifest)
        tiers, ledgers, limit = (lambda: self.storage.tiers), self.form.ledgers, self.options.rows_per_epoch
        found = Backfill(
            names,
            part,
            execute,
            tiers,
            self.patience,
            lambda source, position: ledgers.opened(source, "", position),
            self.storage.drop,
            self._owner,
            limit,
            self.options.usual,
        )
        found.check(self.manifest.sources)
        return found

    def advance(self, backfill: Backfill, new: Plan) -> bool:
        """Build a little more of it; return whether the rest can wait for the swap."""
        return backfill.advance(self.manifest.sources, fitting(self.form, new, self.manifest).manifest.origins)

    def replace(
        self, plan: Plan, execute: Execute, elastic: Elastic | None, backfill: Backfill | None = None
    ) -> Manifest:
        """Replace this form of the query by another, in an epoch of its own: either the new form runs from then on, or nothing has changed (SM-3).

        What cannot be taken over is refused with a QueryError before anything changes. If something is wrong with the new form, so that its first
        epoch fails, the old one continues, and a `TakenBackError` says why. With a `backfill`, new steps begin with the state that it has built.
        """
        self._check_replaceable(plan)
        try:
            manifest = self._replace(plan, execute, elastic, backfill)
        except BaseException:
            if backfill is not None and self._failure is None:
                backfill.close(adopted=False)
            raise
        if backfill is not None:
            backfill.close(adopted=True)
        return manifest

    def _replace(self, plan: Plan, execute: Execute, elastic: Elastic | None, backfill: Backfill | None) -> Manifest:
        started = self.options.timer()
        check_runs(plan)
        found = fitting(self.form, plan, self.manifest)
        if self.storage.has_lost():
            self._recover()
            found = fitting(self.form, plan, self.manifest)
        if backfill is not None:
            found = with_history(found, backfill.finish(found.manifest.sources, found.manifest.origins))
        saved, usual = keep_in_savepoint(self.storage, found), self.reconfiguring.usual
        swap = Swap(self.form, self._formed(plan, execute, elastic, found), found, saved, usual)
        try:
            work = self._first_epoch(swap, started)
        except BaseException as error:
            begun = self.form is swap.after
            self._take_back(swap)
            if not begun or not isinstance(error, Exception):
                raise
            self.note(f"the new form of {plan.graph.name} was taken back: {self.said(error)}")
            raise TakenBackError(plan.graph.name, self.said(error)) from error
        try:
            manifest = self._finish(work, started)
        except BaseException as error:
            self._failure = error
            raise
        swap.after.let_go(swap.before)
        assert self.snapshot is not None
        told, decisions = swap.told(self.snapshot)
        self.note(told.as_event())
        for decision in decisions:
            self._remember_decision(decision)
        return manifest

    def _check_replaceable(self, plan: Plan) -> None:
        """Refuse to replace the query in a run that cannot go on, or in a replica."""
        if self._failure is not None:
            raise self._failure
        if self._replica is not None:
            refuse_replica(plan)

    def change_elasticity(self, elastic: Elastic | None) -> None:
        """From now on let another policy decide, or the same one within other limits, or none. Changes that are under way continue."""
        past = self.observer.past() if elastic is not None else ()
        other = self.reconfiguring.replaced(self.plan, self.manifest, elastic, self.options.usual, past)
        self.form = replace(self.form, reconfiguring=other, elastic=elastic)
        self.note("elasticity is over" if elastic is None else "elasticity goes on with other settings")

    def _formed(self, plan: Plan, execute: Execute, elastic: Elastic | None, found: Replacement) -> Form:
        stay = plan.graph.of_kind(steps.Source).keys() & self.plan.graph.of_kind(steps.Source).keys()
        ledgers = self.form.ledgers.of(stay)
        past = self.observer.past() if elastic is not None and self.form.elastic is None else ()
        reconfiguring = self.reconfiguring.replaced(
            plan, found.manifest, elastic, self.options.usual, past, found.migrated
        )
        publishing = Publishing(plan, self.storage, self.patience, self.note)
        return Form(plan, execute, self._intake(plan, ledgers), ledgers, publishing, reconfiguring, elastic)

    def _first_epoch(self, swap: Swap, started: float) -> Work:
        """Run the tasks of the first epoch of another form; nothing is committed yet."""
        swap.after.take_the_place_of(swap.before)
        self.form, self._begins, self.observer.plan = swap.after, swap.found.manifest, swap.after.plan
        self.intake.look(swap.found.manifest.sources)
        work = self._work(started)
        self._begins = None
        return work

    def _take_back(self, swap: Swap) -> None:
        self.form, self._begins, self.observer.plan = swap.before, None, swap.before.plan
        swap.withdraw(self.storage)
