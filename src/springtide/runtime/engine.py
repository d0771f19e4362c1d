"""One query on one checkpoint, as its caller sees it: a façade. An epoch is run in `runtime/epochs.py`, another form takes over in `runtime/swapping.py`.

How tasks run, on Spark or in this process, is decided by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from springtide.compiler.plan import Plan
from springtide.connectors import Source
from springtide.elastic.decisions import Decision, decisions_of
from springtide.elastic.protocols import ProtocolChoice
from springtide.elastic.resources.local import LocalSlots
from springtide.elastic.resources.resources import Resources
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.operators import check_runs
from springtide.query.errors import SpringtideError
from springtide.runtime.backfilling import Backfill
from springtide.runtime.commands import Reload
from springtide.runtime.committing import Batch
from springtide.runtime.context import RunContext
from springtide.runtime.epochs import Epochs
from springtide.runtime.form import Execute, Form
from springtide.runtime.identity import misfit
from springtide.runtime.intake import Intake
from springtide.runtime.ledgers import Ledgers
from springtide.runtime.options import Options
from springtide.runtime.publishing import Publishing
from springtide.runtime.reconfiguration import Reconfiguration
from springtide.runtime.reconfiguring import Reconfiguring
from springtide.runtime.replicas.replica import refuse_alone
from springtide.runtime.storage import Storage
from springtide.runtime.swapping import Swapping
from springtide.state.bucket_map import BucketMap
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.history import History
from springtide.state.manifest import Manifest
from springtide.state.stores import Store
from springtide.state.tiers import Tiers


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
        self.reload: Reload | None = None
        """Reads the query's file again and replaces the query, if there is such a file."""
        self._context = context = RunContext(plan, checkpoint, options, resources or LocalSlots())
        ledgers = context.ledgers()
        intake = context.intake(
            plan, ledgers
        )  # before the checkpoint is taken: it measures how long streams are silent
        context.take(plan)
        try:
            self._check(plan)
            form = self._form(plan, execute, intake, ledgers)
            form.reconfiguring.begin(options.instances, options.usual)
        except BaseException:
            self.storage.release()
            raise
        self.epochs = Epochs(context, form)
        self._swapping = Swapping(context, self.epochs)

    def _check(self, plan: Plan) -> None:
        """Refuse a checkpoint that belongs to a replica, or whose manifest does not fit the query."""
        if self._context.replica is None:
            refuse_alone(self.storage)
        if (why := misfit(plan, self.manifest)) is not None:
            raise CheckpointError(
                str(self.root),
                f"cannot be read: the manifest of epoch {self.manifest.epoch} is damaged ({why})",
                "restore that file from a copy, or start with a new checkpoint",
            )

    def _form(self, plan: Plan, execute: Execute, intake: Intake, ledgers: Ledgers) -> Form:
        context, elastic = self._context, self.options.elastic
        decisions = Reconfiguration(plan, self.manifest, elastic, context.resources.most(), context.past(elastic))
        reconfiguring = Reconfiguring(
            decisions, context.resources, self.note, context.remember_decision, context.observer.now
        )
        return Form(plan, execute, intake, ledgers, context.publishing(plan), reconfiguring, elastic)

    def begin(self) -> None:
        """Open the sources and the sinks, repair what the last run left, and publish what it may not have published."""
        context = self._context
        if context.replica is not None:
            context.replica.join(self.storage)
        self.intake.open(context.owner)
        self.publishing.open()
        context.patience.attempt("restore", lambda: self.storage.begin(self.epochs.recover))
        self.publishing.begin()
        self.epochs.release()

    def close(self) -> None:
        """Make the state durable, and release the checkpoint."""
        context = self._context
        try:
            context.resources.close()
            try:
                self.publishing.close()
            except SpringtideError as error:  # the sinks have the rows, and the next start will notice that
                self.note(str(error))
            if context.replica is not None:
                context.replica.leave(self.manifest)
            try:
                self.storage.close(stopped=context.commands.is_ending)
            except Exception as error:
                context.commands.ended(self.manifest.epoch, str(error))
                raise
            context.commands.ended(self.manifest.epoch)
            self.epochs.release()
        finally:
            self.intake.close()

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def form(self) -> Form:
        """The form that the query has now."""
        return self.epochs.form

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
    def storage(self) -> Storage:
        """The checkpoint of this run."""
        return self._context.storage

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
        return self._context.observer.events

    @property
    def snapshot(self) -> Snapshot | None:
        """The measurements of the last epoch of this run."""
        return self._context.observer.snapshot

    @property
    def history(self) -> History:
        """What has been measured and decided since the checkpoint began."""
        return self._context.observer.history

    def snapshots(self) -> list[Snapshot]:
        """Return the measurements of the epochs that the checkpoint remembers, oldest first."""
        return [Snapshot.from_json(found) for found in self.history.read("snapshots")]

    def decisions(self, last: int | None = None) -> list[Decision]:
        """Return what has changed since the checkpoint began, why, and what it cost, oldest first; or only the `last` ones."""
        found = decisions_of(self.history.read("decisions", None if last is None else 4 * last))
        return found if last is None else found[-last:]

    def note(self, text: str) -> None:
        """Remember something that people may want to know."""
        self._context.observer.note(text)

    # ── what people ask for ───────────────────────────────────────────────────────────────────────────────────────

    def take_commands(self) -> bool:
        """Carry out the commands in the control folder, from the next epoch on; return whether the run should stop."""
        return self._context.commands.take(lambda: self.reconfiguring, self.reload)

    @property
    def is_told_to_stop(self) -> bool:
        """Whether the run was told to stop while it waited for something: what failed then does not count as a failure."""
        return self._context.commands.stopped

    def wait_no_longer(self) -> None:
        """Stop waiting for whatever fails, because the run is to stop. Called from another thread."""
        self._context.patience.end()

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

    def folder_for_spark(self) -> Path:
        """Return a folder with Spark's records of what it has read; what Spark writes there from now on is kept with every epoch that takes a micro-batch."""
        return self.storage.folder_for_spark()

    def check(self) -> None:
        """Refuse to continue if another run has taken the checkpoint."""
        self.storage.check()

    def spark_waits(self, rows: Mapping[str, int]) -> None:
        """Take note of how many rows, by source, have not been in a micro-batch yet."""
        self.intake.waiting = dict(rows)

    def spark_has_nothing(self) -> None:
        """Take note that Spark has just looked, and that there were no rows."""
        self.intake.nothing_new()

    # ── one epoch ─────────────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Return whether an epoch would do anything now: there are new rows, an input has ended, or time moves on."""
        return self.epochs.has_work()

    def run(self, batch: Batch | None = None) -> Manifest:
        """Run the next epoch to the end, with what `has_work` saw and with Spark's micro-batch `batch` if there is one.

        An epoch without a micro-batch leaves Spark's sources where the last one left them.
        """
        return self.epochs.run(batch)

    # ── another form ──────────────────────────────────────────────────────────────────────────────────────────────

    def find_errors_with(self, said: Callable[[BaseException], str]) -> None:
        """Let `said` find the line that matters in the error that tasks failed with."""
        self._swapping.said = said

    def backfill(self, names: Sequence[str], new: Plan, part: Plan, execute: Execute) -> Backfill:
        """Begin to build the state of steps of a new form from the history of their sources; refuse what cannot be. Nothing changes.

        `part` is as much of that form as leads to them, and `execute` runs its tasks.
        """
        return self._swapping.backfill(names, new, part, execute)

    def advance(self, backfill: Backfill, new: Plan) -> bool:
        """Build a little more of it; return whether the rest can wait for the swap."""
        return self._swapping.advance(backfill, new)

    def replace(
        self, plan: Plan, execute: Execute, elastic: Elastic | None, backfill: Backfill | None = None
    ) -> Manifest:
        """Replace this form of the query by another, in an epoch of its own: either the new form runs from then on, or nothing has changed (SM-3).

        What cannot be taken over is refused with a QueryError before anything changes. If something is wrong with the new form, so that its first
        epoch fails, the old one continues, and a `TakenBackError` says why. With a `backfill`, new steps begin with the state that it has built.
        """
        return self._swapping.replace(plan, execute, elastic, backfill)

    def change_elasticity(self, elastic: Elastic | None) -> None:
        """From now on let another policy decide, or the same one within other limits, or none. Changes that are under way continue."""
        self._swapping.change_elasticity(elastic)
