"""The epochs of a run, one after the other. Decisions are made elsewhere, by pure functions; here they are carried out.

take slices → plan (pure) → run the tasks → manifest (pure) → commit (atomic) → sinks (idempotent by epoch) → clean up
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from springtide.elastic.snapshot import Snapshot
from springtide.query.errors import SpringtideError, UnavailableError
from springtide.query.ids import EpochNumber
from springtide.query.plurals import plural
from springtide.runtime.buffers import record
from springtide.runtime.committing import Batch, manifest_after, with_counts
from springtide.runtime.context import RunContext
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.failpoints import failpoint, fails_now
from springtide.runtime.form import Form
from springtide.runtime.measuring import metrics_of
from springtide.runtime.old_owners import with_old_owners
from springtide.runtime.patience import said
from springtide.runtime.planning import plan_epoch, share_out, unrepeatable
from springtide.runtime.recovering import Recovery, lost
from springtide.state.errors import CheckpointError, LostError
from springtide.state.manifest import Manifest
from springtide.state.metrics import EpochMetrics

Outcome = tuple[Epoch, Sequence[TaskReport], Manifest]
"""An epoch whose tasks are done: the planned epoch, the reports of its tasks, and the manifest to commit."""

_EVENTS = 10
"""The number of events that a manifest keeps."""


class Epochs:
    """Runs the epochs of a query, in the form that it has now."""

    def __init__(self, context: RunContext, form: Form) -> None:
        """Run nothing yet."""
        self.context, self.form = context, form
        self.failure: BaseException | None = None
        """The error that occurred during or after the commit of a new form's first epoch, or when one was taken back: this run cannot continue."""
        self.expected: list[Callable[[Snapshot], None]] = []
        """Called with what is measured of the next epoch."""
        self._looked = 0.0
        """Seconds that the last look at the sources took: some of them read there."""
        self._begins: Manifest | None = None
        """What the next epoch begins with if that is not the last manifest: while the query is being replaced."""

    # ── its form ──────────────────────────────────────────────────────────────────────────────────────────────────

    def first_of(self, form: Form, begins: Manifest, started: float) -> Outcome:
        """Take on another form, and run the tasks of its first epoch; nothing is committed yet."""
        self._take_on(form, begins)
        form.intake.look(begins.sources)
        work = self.work(started)
        self._begins = None
        return work

    def go_back_to(self, form: Form) -> None:
        """Take on a form that was left before anything of the other one was committed."""
        self._take_on(form, None)

    def _take_on(self, form: Form, begins: Manifest | None) -> None:
        self.form, self._begins, self.context.observer.plan = form, begins, form.plan
        self.context.admission.forget()  # what the other form could do says nothing about this one

    @property
    def _before(self) -> Manifest:
        """What the next epoch begins with."""
        return self._begins or self.context.manifest

    # ── one epoch ─────────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Return whether an epoch would do anything now: there are new rows, an input has ended, or time moves on."""
        if self.failure is not None:
            raise self.failure
        began = self.context.options.timer()
        found = self._look()
        self._looked = self.context.options.timer() - began
        return found

    def _look(self) -> bool:
        return self.form.intake.look(self._before.sources, self._before.epoch + 1)

    def run(self, batch: Batch | None) -> Manifest:
        """Run the next epoch to the end, with what `has_work` saw and with a micro-batch of Spark if there is one."""
        with self.context.options.spans.span("epoch", epoch=self.context.manifest.epoch + 1):
            self.form.reconfiguring.prepare()
            started = self.context.options.timer()
            return self.finish(self.work(started, batch), started, batch)

    def work(self, started: float, batch: Batch | None = None) -> Outcome:
        """Run the tasks of the next epoch; nothing is committed yet."""
        context = self.context
        failpoint("before-job")
        with context.options.spans.span("run"):
            number = context.manifest.epoch + 1
            work = context.patience.attempt(f"epoch {number}", lambda: self._attempted(started, batch))
            context.options.spans.tasks(work[1])
        failpoint("after-job")
        if self.form.intake.fails and fails_now(context.checkpoint.root, work[0].number):
            raise SpringtideError("a test wanted the run to fail here")
        return work

    def finish(self, work: Outcome, started: float, batch: Batch | None = None) -> Manifest:
        """Commit an epoch whose tasks are done, and publish it."""
        context, form = self.context, self.form
        span, (epoch, reports, manifest) = context.options.spans.span, work
        with span("commit"):
            context.patience.attempt("commit", lambda: context.storage.commit(manifest))
        failpoint("after-manifest")
        context.commands.committed(manifest, form.reconfiguring)
        form.reconfiguring.committed(manifest)
        if batch is not None:
            form.intake.micro_batch(started, [r.times for r in reports])
        backlogs, (rows, waiting) = form.intake.backlogs(), form.intake.admitted(reports)
        form.intake.done()
        with span("publish"):
            form.publishing.publish()
        if context.replica is not None:
            context.replica.report(manifest)
        failpoint("after-publish")
        with span("settle"):
            context.patience.attempt("checkpoint", context.storage.settle)
            self.release()
        failpoint("after-clean")
        context.admission.learn(self._looked + context.options.timer() - started, rows, waiting)
        snapshot = context.observer.epoch(epoch, reports, context.manifest, context.storage, started, backlogs)
        form.reconfiguring.measured(snapshot)
        while self.expected:
            self.expected.pop()(snapshot)
        return manifest

    def release(self) -> None:
        """Tell the sources which input will not be read again."""
        durable = self.context.storage.durable
        if durable is not None and self.context.replica is None:  # other replicas may still read it
            self.form.intake.committed(durable.epoch, durable.sources)

    # ── its tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _attempted(self, started: float, batch: Batch | None) -> Outcome:
        """Run the tasks of an epoch; one that is larger than usual and fails is cut again, as it may just have been too large for the memory of the workers."""
        try:
            return self._perform(started, batch)
        except Exception as error:
            is_understood = isinstance(error, SpringtideError) and not isinstance(error, UnavailableError)
            is_to_stop = not self.context.patience.wait(0)
            if is_understood or is_to_stop or not self.context.admission.forget():
                raise
            limit = self.context.admission.limit
            self.context.note(
                f"an epoch failed ({said(error)}); it is tried again with {plural(limit, 'row')} of an input at most"
            )
        self._look()
        return self._perform(started, batch)

    def _perform(self, started: float, batch: Batch | None) -> Outcome:
        """Run the tasks of an epoch; if state is lost, rebuild it first. Tasks that fail because state is missing are run again."""
        storage = self.context.storage
        if self._begins is not None:
            return self._performed(started, batch)  # another form must not rebuild what this one has lost
        if not (storage.in_background and storage.has_lost(quickly=True)):
            try:
                return self._performed(started, batch)
            except Exception as error:
                if not storage.has_lost():
                    if not isinstance(error, LostError):
                        raise
                    return self._performed(started, batch)  # by now a checkpoint has written it to the disk
        self.recover()
        return self._performed(started, batch)

    def _performed(self, started: float, batch: Batch | None) -> Outcome:
        """Plan an epoch, run its tasks, and return the planned epoch, the reports of its tasks, and the manifest to commit."""
        context, form, before = self.context, self.form, self._before
        storage, plan = context.storage, form.plan
        taken, owned = form.intake.plan(before.sources), form.reconfiguring.ownership(before)
        given = share_out(plan, owned.maps, taken)
        always = context.options.durability.buffer
        buffered = unrepeatable(plan, given.slices, always=always) if storage.in_background else frozenset[str]()
        live = with_old_owners(plan, tuple(owned.old_owners))
        number, digested = EpochNumber(before.epoch + 1), context.replica is not None
        epoch = plan_epoch(live, number, storage.tiers, given, owned, buffered=buffered, digested=digested)
        reports = form.execute(epoch)
        sources = with_counts(form.intake.after(before.sources, epoch, reports), epoch, reports)
        log = record(epoch, reports, idle=taken.idle) if storage.in_background else None
        manifest = manifest_after(
            before,
            live,
            epoch,
            reports,
            generation=storage.lease.generation,
            sources=form.ledgers.settled(sources),
            batch=batch,
            metrics=self._metrics(reports, started),
            elastic=form.remembered(),
            log=log,
        )
        begins, changed = epoch.old_owners != before.old_owners, manifest.old_owners != before.old_owners
        if storage.in_background and (begins or changed or manifest.form != storage.manifest.form):
            # A window recreation begins or ends, or the query is replaced: no replay may cross that, so the state must be durable first.
            # One that does both in this epoch is not seen in manifests, so this one says that nobody knows what the epoch took in.
            if begins and not changed:
                manifest = replace(manifest, log=None)
            storage.make_durable(manifest)
        return epoch, reports, manifest

    def _metrics(self, reports: Sequence[TaskReport], started: float) -> EpochMetrics:
        observer = self.context.observer
        return metrics_of(
            self.form.plan,
            reports,
            at=observer.now(),
            seconds=self.context.options.timer() - started,
            backlog=self.form.intake.backlog,
            events=observer.events[-_EVENTS:],
        )

    def recover(self) -> None:
        """Rebuild lost state: restore, partition, replay (SE-3). The epoch stays the same, but its state is in other files."""
        context, form, tiers = self.context, self.form, self.context.storage.tiers
        started, before = context.options.timer(), context.manifest
        gone = lost(tiers, before)
        whose = ", ".join(dict.fromkeys(s.subquery for s in gone))
        context.note(f"lost {plural(len(gone), 'segment')} of {whose}: the state is being rebuilt")
        fixed = {n for n, m in form.reconfiguring.maps.items() if before.maps.get(n) != m}
        degree, limit = context.options.durability.degree, context.admission.limit
        try:
            manifest = Recovery(form.plan, tiers, form.execute, degree, limit).run(context.storage.kept, fixed)
        except CheckpointError:
            context.storage.check()  # a run that took over removes what only its predecessor needed
            raise
        context.storage.replace(manifest)
        form.reconfiguring.recovered(manifest, fixed)
        context.note(f"the state of {whose} is whole again after {context.options.timer() - started:.2f} s")
