"""What a run has from its beginning to its end, whatever form its query has meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from springtide.compiler.plan import Plan
from springtide.connectors import Owner
from springtide.elastic.resources.resources import Resources
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.query import steps
from springtide.runtime.admission import USUAL, Admission
from springtide.runtime.commands import Commands
from springtide.runtime.identity import identity
from springtide.runtime.intake import Intake
from springtide.runtime.ledgers import Ledgers
from springtide.runtime.observing import Observer
from springtide.runtime.options import Options
from springtide.runtime.patience import Patience
from springtide.runtime.publishing import Publishing
from springtide.runtime.replicas.publishing import SharedPublishing
from springtide.runtime.replicas.replica import Replica
from springtide.runtime.storage import Storage
from springtide.state.checkpoint import Checkpoint
from springtide.state.manifest import Manifest


class RunContext:
    """The settings of a run, its checkpoint, and those who watch it, wait for it and speak for it."""

    storage: Storage
    """The checkpoint of this run, once it was taken."""

    def __init__(self, plan: Plan, checkpoint: Checkpoint, options: Options, resources: Resources) -> None:
        """Touch nothing yet."""
        self.query, self.checkpoint, self.options, self.resources = plan.graph.name, checkpoint, options, resources
        # Replicas take what one of them proposes, so none of them may find that it can do with more than the others.
        self.admission = Admission(options.rows_per_epoch or (USUAL if options.replica else None))
        self.observer = Observer(plan, checkpoint, options, resources)
        self.commands = Commands(checkpoint.root, self.note)
        self.patience = Patience(options.patience, self.note, self.commands.told_to_stop, options.timer)
        self.replica = (
            Replica(options.replica, plan, self.patience, options.timer, self.note) if options.replica else None
        )

    def take(self, plan: Plan) -> None:
        """Take the checkpoint, which no other run may use from now on."""
        self.storage = self.patience.attempt("restore", lambda: self._storage(plan))

    def _storage(self, plan: Plan) -> Storage:
        options = self.options
        return Storage(
            self.checkpoint,
            identity(plan),
            options.durability,
            options.timer,
            self.note,
            options.sighting,
            options.signs,
        )

    @property
    def manifest(self) -> Manifest:
        """The manifest of the last committed epoch."""
        return self.storage.manifest

    def note(self, text: str) -> None:
        """Remember something that people may want to know."""
        self.observer.note(text)

    def remember_decision(self, decision: dict[str, Any]) -> None:
        """Write down a decision, or what it cost; whoever asked for it is told the cost."""
        self.observer.decision(self.storage.lease.generation, decision)
        if "done" in decision:
            self.commands.measured(decision)

    # ── the parts of a form ───────────────────────────────────────────────────────────────────────────────────────

    def ledgers(self) -> Ledgers:
        """Return ledgers that nothing was read from yet."""
        return Ledgers(lambda: self.storage.tiers)

    def intake(self, plan: Plan, ledgers: Ledgers) -> Intake:
        """Return the sources of a plan; they are not open."""
        sources, options = plan.graph.of_kind(steps.Source), self.options
        return Intake(sources, self.admission, options.timer, self.patience, ledgers, self.note, self.replica)

    def publishing(self, plan: Plan) -> Publishing:
        """Return the sinks of a plan; they are not open."""
        if self.replica is None:
            return Publishing(plan, self.storage, self.patience, self.note)
        return SharedPublishing(plan, self.storage, self.patience, self.note, self.replica, self.options.timer)

    def past(self, elastic: Elastic | None) -> Sequence[Snapshot]:
        """Return what earlier runs measured, for a policy; nothing without one."""
        return self.observer.past() if elastic is not None else ()

    def owner(self, source: str) -> Owner:
        """Return the owner, which tells a source whose run this is."""
        return Owner(
            self.query,
            source,
            self.storage.lineage,
            self.storage.lease.generation,
            self.manifest.epoch,
            kind="source",
            note=lambda text: self.note(f"step {source} (source): {text}"),
        )
