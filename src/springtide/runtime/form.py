"""One form of a running query: everything that changes when the query is replaced while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from springtide.compiler.plan import Plan
from springtide.elastic.settings import Elastic
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.intake import Intake
from springtide.runtime.ledgers import Ledgers
from springtide.runtime.publishing import Publishing
from springtide.runtime.reconfiguring import Reconfiguring
from springtide.runtime.settings import Settings, digest_of, settings_of
from springtide.state.manager_state import ManagerState

Execute = Callable[[Epoch], Sequence[TaskReport]]
"""Runs the tasks of an epoch and returns their reports."""


@dataclass(frozen=True)
class Form:
    """A plan with what runs its tasks, its sources and sinks, and what decides about its instances."""

    plan: Plan
    execute: Execute
    intake: Intake
    ledgers: Ledgers
    publishing: Publishing
    reconfiguring: Reconfiguring
    elastic: Elastic | None

    @cached_property
    def settings(self) -> Settings:
        """What `elastic` said in the beginning: what a policy keeps while it runs does not count."""
        return settings_of(self.elastic)

    def remembered(self) -> ManagerState | None:
        """Return what the manager must know when the run starts again; nothing without one."""
        manager = self.reconfiguring.manager
        return None if manager is None else replace(manager.state, settings=digest_of(self.settings))

    def take_the_place_of(self, before: Form) -> None:
        """Open what is new, and close what it replaces; what stays is taken over as it is."""
        self.intake.replace(before.intake)
        self.publishing.replace(before.publishing)
        self.intake.open_new()

    def let_go(self, before: Form) -> None:
        """Close the sources that only the previous form had, now that this one is committed. Its sinks were closed before."""
        self.intake.close_others(before.intake)

    def go_on_instead_of(self, after: Form) -> None:
        """Continue as if the other form had never existed."""
        self.intake.close_others(after.intake)
        after.publishing.give_way_to(self.publishing)
        self.publishing.open_again()
