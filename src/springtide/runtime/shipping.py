"""What of a plan goes to the tasks. Sinks stay in the driver: what they hold, a connection or a password, is no business of the workers'."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from springtide.compiler.plan import Plan
from springtide.query import steps


@dataclass(frozen=True)
class Outbox:
    """What a task knows of a sink: how it wants its files."""

    outbox: str

    def check(self, schema: pl.Schema) -> str | None:
        """Take what the sink itself was asked about."""
        return None

    def describe(self) -> str:
        """Say what it is."""
        return f"outbox of {self.outbox} files"


def for_tasks(plan: Plan) -> Plan:
    """Give the plan with no more of its sinks than tasks need."""
    sinks = {
        name: replace(sink, connector=Outbox(getattr(sink.connector, "outbox", "arrow")))
        for name, sink in plan.graph.of_kind(steps.Sink).items()
    }
    return replace(plan, graph=plan.graph.with_sinks(sinks))
