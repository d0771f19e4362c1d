"""What of a plan goes to the tasks. Sinks stay in the driver: what they hold, such as a connection or a password, never reaches a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

from springtide.compiler.plan import Plan
from springtide.connectors import Outbox, Sink
from springtide.query import steps
from springtide.query.connectors import SinkConnector


@dataclass(frozen=True)
class Shipped(SinkConnector):
    """What a task knows of a sink: what to do with its rows."""

    outbox: Outbox

    def describe(self) -> str:
        """Return what it is."""
        return f"outbox of {self.outbox.suffix} files"


def for_tasks(plan: Plan) -> Plan:
    """Return the plan with only as much of its sinks as tasks need."""
    sinks = {
        name: replace(sink, connector=Shipped(sink.connector.outbox))
        for name, sink in plan.graph.of_kind(steps.Sink).items()
        if isinstance(sink.connector, Sink)
    }
    return replace(plan, graph=plan.graph.with_sinks(sinks))
