"""Another form of a query in place of the one that runs (SM-3): what is refused, its first epoch, the way back if that fails, and what people are told.

`runtime/replacing.py` says what the new form takes over, and `runtime/backfilling.py` makes the history of steps that are new.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

from springtide.compiler.plan import Plan
from springtide.elastic.decisions import Outcome
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.operators import check_runs
from springtide.query import steps
from springtide.query.errors import QueryError, SpringtideError, TakenBackError, UserCodeError
from springtide.query.ids import EpochNumber
from springtide.runtime.backfilling import Backfill
from springtide.runtime.context import RunContext
from springtide.runtime.epochs import Epochs
from springtide.runtime.form import Execute, Form
from springtide.runtime.recovering import lost
from springtide.runtime.replacing import Replacement, replacement, with_history
from springtide.runtime.settings import differences
from springtide.runtime.storage import Storage
from springtide.state.bucket_map import BucketMap
from springtide.state.errors import LostError
from springtide.state.instructions import Instruction
from springtide.state.manifest import Manifest
from springtide.state.savepoints import release, save

T = TypeVar("T")

_LOST = "state was lost while it began, which was not its fault; replace the query again"


class Swapping:
    """Gives a query that runs another form, between two of its epochs."""

    def __init__(self, context: RunContext, epochs: Epochs) -> None:
        """ChangeRecord nothing yet."""
        self._context, self._epochs = context, epochs
        self.said: Callable[[BaseException], str] = str
        """Finds the line that matters in the error that tasks failed with."""

    # ── steps that begin with history ─────────────────────────────────────────────────────────────────────────────

    def backfill(self, names: Sequence[str], new: Plan, part: Plan, execute: Execute) -> Backfill:
        """Begin to build the state of steps of a new form from the history of their sources; refuse what cannot be. Nothing changes.

        `part` is as much of that form as leads to them, and `execute` runs its tasks.
        """
        context, ledgers = self._context, self._epochs.form.ledgers
        self._check_replaceable(new)
        self._fitting(new)
        found = Backfill(
            names,
            part,
            execute,
            lambda: context.storage.tiers,
            context.patience,
            lambda source, position: ledgers.opened(source, "", position),
            context.storage.drop,
            context.owner,
            context.admission,
            context.options.usual,
        )
        found.check(context.manifest.sources)
        return found

    def advance(self, backfill: Backfill, new: Plan) -> bool:
        """Build a little more of it; return whether the rest can wait for the swap."""
        origins = self._fitting(new).manifest.origins
        return self._built(lambda: backfill.advance(self._context.manifest.sources, origins))

    def _built(self, build: Callable[[], T]) -> T:
        """Build some of the history; whatever fails in its tasks is told as if the first epoch of the new form had failed."""
        try:
            return build()
        except Exception as error:
            if isinstance(error, SpringtideError) and not isinstance(error, LostError | UserCodeError):
                raise
            raise self._taken_back(error, lost=isinstance(error, LostError)) from error

    def _taken_back(self, error: BaseException, *, lost: bool) -> TakenBackError:
        """Tell people that the old form continues, and why. The new form is not to blame for state that is `lost`."""
        context, why = self._context, _LOST if lost else self.said(error)
        context.note(f"the new form of {context.query} was taken back: {why}")
        return TakenBackError(context.query, why)

    # ── another form ──────────────────────────────────────────────────────────────────────────────────────────────

    def replace(self, plan: Plan, execute: Execute, elastic: Elastic | None, backfill: Backfill | None) -> Manifest:
        """Replace the form of the query in an epoch of its own; see `Engine.replace`."""
        self._check_replaceable(plan)
        try:
            self._want_executors(elastic)
            manifest = self._replace(plan, execute, elastic, backfill)
        except BaseException:
            self._want_executors(self._epochs.form.elastic)
            if backfill is not None and self._epochs.failure is None:
                backfill.close(adopted=False)
            raise
        if backfill is not None:
            backfill.close(adopted=True)
        return manifest

    def change_elasticity(self, elastic: Elastic | None) -> None:
        """From now on let another policy decide, or the same one within other limits, or none. Changes that are under way continue."""
        context, form = self._context, self._epochs.form
        self._want_executors(elastic)
        try:
            other = form.reconfiguring.replaced(
                form.plan, context.manifest, elastic, context.options.usual, context.past(elastic)
            )
        except BaseException:
            self._want_executors(form.elastic)
            raise
        self._epochs.form = replace(form, reconfiguring=other, elastic=elastic)
        what = "; ".join(differences(form.settings, self._epochs.form.settings)) or "elasticity is as it was"
        change = ChangeRecord.of(context.query, what, context.observer.now(), context.manifest.epoch)
        context.remember_decision(change.decision())
        self._epochs.expected.append(
            lambda first: context.remember_decision(change.outcome(first, form.reconfiguring.usual))
        )
        context.note(change.told.as_event())

    def _want_executors(self, elastic: Elastic | None) -> None:
        self._context.resources.want(elastic.executors if elastic else None)

    def _check_replaceable(self, plan: Plan) -> None:
        """Refuse to replace the query in a run that cannot go on, or in a replica."""
        if self._epochs.failure is not None:
            raise self._epochs.failure
        if self._context.replica is not None:
            refuse_replica(plan)

    def _fitting(self, plan: Plan) -> Replacement:
        return fitting(self._epochs.form, plan, self._context.manifest)

    def _replace(self, plan: Plan, execute: Execute, elastic: Elastic | None, backfill: Backfill | None) -> Manifest:
        context, epochs = self._context, self._epochs
        started, before = context.options.timer(), epochs.form
        check_runs(plan)
        found = self._fitting(plan)
        if context.storage.has_lost():
            epochs.recover()
            found = self._fitting(plan)
        if backfill is not None:
            boundary = found.manifest
            found = with_history(found, self._built(lambda: backfill.finish(boundary.sources, boundary.origins)))
        form = self._formed(plan, execute, elastic, found)  # what does not fit leaves no savepoint
        swap = Swap(before, form, found, keep_in_savepoint(context.storage, found), before.reconfiguring.usual)
        manifest = self._first_epoch(swap, started)
        swap.after.let_go(swap.before)
        assert context.observer.snapshot is not None
        change = swap.change(context.observer.snapshot)
        context.note(change.told.as_event())
        context.remember_decision(change.decision())
        context.remember_decision(change.outcome(context.observer.snapshot, swap.usual))
        return manifest

    def _first_epoch(self, swap: Swap, started: float) -> Manifest:
        """Run the first epoch of another form; if it fails before it is committed, go back to the form before."""
        context, epochs = self._context, self._epochs
        try:
            swap.after.take_the_place_of(swap.before)
            work = epochs.first_of(swap.after, swap.found.manifest, started)
        except BaseException as error:
            begun = epochs.form is swap.after
            self._take_back(swap)
            if not begun or not isinstance(error, Exception):
                raise
            raise self._taken_back(error, lost=bool(lost(context.storage.tiers, swap.found.manifest))) from error
        try:
            return epochs.finish(work, started)
        except BaseException as error:
            epochs.failure = error
            raise

    def _take_back(self, swap: Swap) -> None:
        """Return to the form before; if a source or a sink of it cannot be opened again, this run cannot continue."""
        self._epochs.go_back_to(swap.before)
        try:
            swap.withdraw(self._context.storage)
        except BaseException as error:
            self._epochs.failure = error
            raise

    def _formed(self, plan: Plan, execute: Execute, elastic: Elastic | None, found: Replacement) -> Form:
        context, before = self._context, self._epochs.form
        stay = plan.graph.of_kind(steps.Source).keys() & before.plan.graph.of_kind(steps.Source).keys()
        ledgers = before.ledgers.of(stay)
        past = context.past(elastic) if before.elastic is None else ()
        reconfiguring = before.reconfiguring.replaced(
            plan, found.manifest, elastic, context.options.usual, past, found.migrated
        )
        intake, publishing = context.intake(plan, ledgers), context.publishing(plan)
        return Form(plan, execute, intake, ledgers, publishing, reconfiguring, elastic)


@dataclass(frozen=True)
class Swap:
    """One replacement of a form of a query by another."""

    before: Form
    after: Form
    found: Replacement
    saved: str | None
    """The savepoint that has the state of steps that are removed, if there are any."""
    usual: float | None
    """The seconds that an epoch of the old form took; None before there was one."""

    def withdraw(self, storage: Storage) -> None:
        """Continue with the old form as if the new one had never existed."""
        storage.forget(self.found.manifest.epoch + 1)
        self.before.go_on_instead_of(self.after)
        if self.saved is not None:
            with suppress(SpringtideError, OSError):  # then it stays, and takes up some space
                release(storage.checkpoint.store, self.saved)

    def change(self, first: Snapshot) -> ChangeRecord:
        """Return what was changed, once its first epoch was measured."""
        differ = [*self.found.changes, *differences(self.before.settings, self.after.settings)]
        what = "; ".join(differ) or "nothing that has a state of its own"
        kept = f"; what {', '.join(self.found.leaving)} had is in the savepoint {self.saved}" if self.saved else ""
        return ChangeRecord.of(self.after.plan.graph.name, what + kept, first.time, EpochNumber(first.epoch - 1))


@dataclass(frozen=True)
class ChangeRecord:
    """What was changed in a query and what that cost, as for a scaling."""

    id: str
    told: Instruction

    @staticmethod
    def of(query: str, what: str, time: float, epoch: EpochNumber) -> ChangeRecord:
        """Say that something was changed after an epoch."""
        whole = BucketMap(0, 1, ())
        return ChangeRecord(uuid.uuid4().hex[:12], Instruction(time, epoch, "replace", query, whole, whole, (), what))

    def decision(self) -> dict[str, Any]:
        """Return the record that says what was decided."""
        return {"id": self.id, "what": str(self.told), "protocol": "virtual", "waited": 0.0} | self.told.to_json()

    def outcome(self, first: Snapshot, usual: float | None) -> dict[str, Any]:
        """Return the record that says what it cost: how much longer the first epoch with it took than is usual."""
        extra = 0.0 if usual is None else first.seconds - usual
        outcome = Outcome(first.time, first.epoch, first.seconds, round(extra, 6), bytes_moved=0)
        return outcome.record(self.id, self.told.subquery)


def refuse_replica(plan: Plan) -> NoReturn:
    """Refuse to give one replica another form while the others keep the old one."""
    raise QueryError(
        f"{plan.graph.name} (query)",
        "a replica cannot be given another form while it runs: the others would not make the same rows",
        "stop the replicas, and start them with the new query and a new group; code that makes the same rows one after the other, with this one",
    )


def fitting(before: Form, plan: Plan, manifest: Manifest) -> Replacement:
    """Return what another plan takes over from a form after an epoch; refuse what does not fit."""
    found = replacement(before.plan, plan, manifest)
    for name in found.migrated:
        if before.reconfiguring.waits(name):
            hint = "replace the query when it has them, or scale it back first"
            raise QueryError(f"{name} (subquery)", "it waits for executors, and its state is to be migrated", hint)
    return found


def keep_in_savepoint(storage: Storage, found: Replacement) -> str | None:
    """Keep the state of steps that are removed in a savepoint; return its name."""
    epoch = storage.manifest.epoch
    if not found.leaving or epoch < 0:
        return None
    name = f"before-epoch-{epoch + 1}-{uuid.uuid4().hex[:4]}"
    storage.make_durable()
    if storage.checkpoint.remote is None:
        for segment in storage.manifest.segments():
            storage.tiers.find(
                segment
            )  # a savepoint links files of this folder; what it has lost comes from the backup
    save(storage.checkpoint.store, name)
    return name
