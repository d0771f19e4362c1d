"""A query at work in one form: all that is another one when the query is replaced while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from springtide.compiler.plan import Plan
from springtide.elastic.settings import Elastic
from springtide.runtime.epoch import Epoch, TaskReport
from springtide.runtime.intake import Intake
from springtide.runtime.ledgers import Ledgers
from springtide.runtime.publishing import Publishing
from springtide.runtime.reconfiguring import Reconfiguring

Execute = Callable[[Epoch], Sequence[TaskReport]]
"""Runs the tasks of an epoch and gives their reports."""


@dataclass(frozen=True)
class Form:
    """A plan, who runs its tasks, its sources and its sinks, and who decides about its instances."""

    plan: Plan
    execute: Execute
    intake: Intake
    ledgers: Ledgers
    publishing: Publishing
    reconfiguring: Reconfiguring
    elastic: Elastic | None

    def take_the_place_of(self, before: Form) -> None:
        """Open what is new, and close what it takes the place of; what stays is taken over as it is."""
        self.intake.replace(before.intake)
        self.publishing.replace(before.publishing)
        self.intake.open_new()

    def let_go(self, before: Form) -> None:
        """Close what only the form before had: this one has come to stay."""
        self.intake.close_others(before.intake)
        before.publishing.close_others(self.publishing)

    def go_on_instead_of(self, after: Form) -> None:
        """Go on as if the other form had never been."""
        self.intake.close_others(after.intake)
        after.publishing.close_others(self.publishing)
        self.publishing.open_again()
