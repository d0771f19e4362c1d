"""The events and the actions of `runtime/reconfiguration.py`: what happens to the bucket maps of a run, and what to do about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from springtide.elastic.decisions import Outcome
from springtide.elastic.protocols import Protocol, ProtocolChoice
from springtide.elastic.snapshot import Snapshot
from springtide.state.instructions import Instruction
from springtide.state.manifest import Manifest


@dataclass(frozen=True)
class Moment:
    """When an event happens, and the slots that there are then."""

    time: float
    slots: int | None = None
    """None where nobody knows."""
    grows: bool = False
    """Whether slots that are requested can come."""


UNTIMED = Moment(0.0)


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Start:
    """The run begins: every subquery gets its instances, as wanted, else as before, else as usual."""

    wanted: int | Mapping[str, int] | None = None
    usual: int = 1


@dataclass(frozen=True)
class Scale:
    """Give the subquery of a step another number of instances."""

    step: str
    instances: int
    protocol: ProtocolChoice | None = None


@dataclass(frozen=True)
class Move:
    """Give some buckets of a step to one of its instances."""

    step: str
    buckets: Sequence[int]
    to: int
    protocol: ProtocolChoice | None = None


@dataclass(frozen=True)
class Rebalance:
    """Even out the load of a step's instances, by the rows of the last epochs, or by the number of buckets if there were none."""

    step: str
    protocol: ProtocolChoice | None = None


@dataclass(frozen=True)
class Pause:
    """Let the manager decide nothing until `Resume`."""


@dataclass(frozen=True)
class Resume:
    """Let the manager decide again."""


@dataclass(frozen=True)
class Due:
    """An epoch is about to be planned: what waited for slots is done if they are there, or has waited for too long."""


@dataclass(frozen=True)
class Committed:
    """An epoch has happened: what began with it has begun, and what it finished is over."""

    manifest: Manifest


@dataclass(frozen=True)
class Recovered:
    """Lost state was rebuilt, and may have new owners; subqueries in `fixed` are about to get another map anyway."""

    manifest: Manifest
    fixed: Collection[str] = ()


@dataclass(frozen=True)
class Measured:
    """An epoch was measured: the manager may decide what comes next."""

    snapshot: Snapshot


Event = Start | Scale | Move | Rebalance | Pause | Resume | Due | Committed | Recovered | Measured


# ── actions ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RequestSlots:
    """Ask the cluster for a number of slots."""

    slots: int


@dataclass(frozen=True)
class ReleaseSlots:
    """Give back all slots beyond a number."""

    slots: int


@dataclass(frozen=True)
class Applied:
    """The next epoch runs with the new map of an instruction: write the decision down."""

    instruction: Instruction
    protocol: Protocol
    waited: float = 0.0
    """Seconds that it waited for slots."""


@dataclass(frozen=True)
class Waits:
    """An instruction waits for slots."""

    instruction: Instruction


@dataclass(frozen=True)
class Finished:
    """An epoch has run with the new map of an instruction: write down what that cost."""

    instruction: Instruction
    outcome: Outcome


@dataclass(frozen=True)
class Note:
    """Tell people."""

    text: str


Action = RequestSlots | ReleaseSlots | Applied | Waits | Finished | Note
