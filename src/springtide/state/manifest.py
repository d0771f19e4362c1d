"""Manifests: the commit record of an epoch, written last, atomically."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from springtide.query.ids import EpochNumber, Generation, InstanceId, Micros
from springtide.state.bucket_map import MOST_INSTANCES, BucketMap, check_map
from springtide.state.forms import Identity, check_identity
from springtide.state.manager_state import ManagerState, check_manager_state
from springtide.state.metrics import EpochMetrics, check_metrics
from springtide.state.parsing import NewerFormat, parsed
from springtide.state.segment import Segment
from springtide.state.shapes import (
    SIGNED,
    anything,
    each,
    flag,
    known,
    listed,
    may,
    maybe,
    names,
    one_of,
    path,
    record,
    row,
    text,
    whole,
)

FORMAT = 1

_NO_TIME = Micros(-(2**63))
"""Before a tuple came."""

FATES = ("read", "changed", "gone")
"""What may become of a file of a source: read; read, and changed since; gone before it was read."""

Marks = Mapping[str, int]
"""How far a stateful step has come, in its own terms: the last window closed, the time up to which tuples were processed."""


@dataclass(frozen=True)
class InputState:
    """How far an input that was attached to a source was read."""

    position: Any = None
    """In the connector's own format."""
    ended: bool = False


@dataclass(frozen=True)
class SourceState:
    """How far a source was read."""

    position: Any = None
    """In the connector's own format."""
    times: dict[str, Micros] = field(default_factory=dict)
    """Physical stream → its time."""
    ended: bool = False
    greatest: Micros = _NO_TIME
    """The greatest time of a tuple that came in, or of a dummy."""
    accepted: int = 0
    late: int = 0
    rejected: int = 0
    attached: dict[str, InputState] = field(default_factory=dict)
    """Further inputs of the source by name; the empty name says whether its own connector has ended."""

    def ledgers(self) -> list[dict[str, Any]]:
        """Return the ledgers of the source's inputs, where these are files: see `connectors.file_ledger`."""
        positions = [self.position, *(of.position for of in self.attached.values())]
        return [p["ledger"] for p in positions if isinstance(p, dict) and "ledger" in p]

    @property
    def files(self) -> dict[str, int]:
        """How many files were read, were read and have changed since, and were gone before they were read."""
        return {fate: sum(ledger.get(fate, 0) for ledger in self.ledgers()) for fate in FATES}

    def to_json(self) -> dict[str, Any]:
        """Write it for the manifest."""
        return vars(self) | {"attached": {name: vars(of) for name, of in self.attached.items()}}

    @staticmethod
    def from_json(data: dict[str, Any]) -> SourceState:
        """Read what `to_json` wrote."""
        attached = {name: known(InputState, of) for name, of in data.get("attached", {}).items()}
        return known(SourceState, data | {"attached": attached})


@dataclass(frozen=True)
class SubqueryState:
    """The state of a stateful subquery."""

    marks: Marks = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Delivery:
    """Rows for a sink, written by a task and waiting to be published."""

    sink: str
    file: str
    rows: int
    instance: InstanceId
    digest: str = ""
    """Of the rows, whatever their order; only where replicas compare what they made."""

    def to_json(self) -> dict[str, Any]:
        """Return what is written to a manifest."""
        return {name: value for name, value in vars(self).items() if name != "digest" or value}


@dataclass(frozen=True)
class EpochLog:
    """What an epoch took in, so that it can be done again."""

    times: Mapping[str, Mapping[str, Micros]] = field(default_factory=dict)
    """Source → physical stream → its time before the epoch's rows."""
    greatest: Mapping[str, Micros] = field(default_factory=dict)
    """Source → the greatest time of a tuple before the epoch's rows, or of a dummy."""
    slices: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]] = field(default_factory=dict)
    """Prefix subquery → instance → the slices that it read, as plain JSON."""
    buffers: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    """Prefix subquery → instance → files with what it sent, if its input cannot be read again."""
    rows: int = 0
    idle: bool = False
    """Whether streams were found idle: such an epoch must not be merged with others in a replay."""
    shared_memory: str | None = None
    """The folder of state that was not durable yet. On disk it is called `memory`."""

    def to_json(self) -> dict[str, Any]:
        """Write it as plain JSON."""
        return {"memory" if name == "shared_memory" else name: value for name, value in vars(self).items()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> EpochLog:
        """Read what `to_json` wrote."""
        return known(EpochLog, {"shared_memory" if name == "memory" else name: value for name, value in data.items()})


@dataclass(frozen=True)
class Manifest:
    """Everything that the next epoch needs to know."""

    epoch: EpochNumber
    generation: Generation
    sources: dict[str, SourceState] = field(default_factory=dict)
    maps: dict[str, BucketMap] = field(default_factory=dict)
    state: dict[str, SubqueryState] = field(default_factory=dict)
    outbox: tuple[Delivery, ...] = ()
    metrics: EpochMetrics = field(default_factory=EpochMetrics)
    elastic: ManagerState | None = None
    """What the elastic manager remembers; None if the query is not elastic."""
    old_owners: dict[str, int] = field(default_factory=dict)
    """Subquery → the last window that its old owners finish, while they do. On disk it is called `shadows`."""
    ended: bool = False
    """Whether the input has ended and every window was emitted: there is no next epoch."""
    batch: int | None = None
    """The last micro-batch of Spark that was taken, in this epoch or an earlier one, if Spark reads a source."""
    offsets: str | None = None
    """A digest of Spark's own record of that micro-batch; None in manifests of older versions."""
    published: bool = False
    """Whether its rows are in the sinks and no longer here: so in copies of an older epoch, and in savepoints."""
    log: EpochLog | None = None
    """What the epoch took in, so that it can be done again: kept if state is not made durable with every epoch."""
    accounts: dict[str, dict[str, int]] = field(default_factory=dict)
    """What became of the rows so far (`state/accounts.py`)."""
    form: Identity | None = None
    """The identity of the query that made it, where that was replaced while it ran; None: the one that the checkpoint began with."""
    origins: tuple[str, ...] = ()
    """Sources and stateful steps by their rank in the total order, where the query was replaced; without it they rank by name."""

    def files(self) -> set[str]:
        """Return the files that it names, except buffers: segments, and ledgers of files that were read."""
        return {segment.file for segment in self.segments()} | self.ledgers().keys()

    def ledgers(self) -> dict[str, tuple[int, int]]:
        """Return the ledger files of its sources, with the number of records and the checksum of each."""
        ledgers = [ledger for source in self.sources.values() for ledger in source.ledgers()]
        return {file: (count, crc) for ledger in ledgers for file, count, crc in ledger.get("files", ())}

    def segments(self) -> Iterator[Segment]:
        """Return all segments that it names."""
        return (segment for state in self.state.values() for segment in state.segments)

    def buffers(self) -> set[str]:
        """Return the files of the buffer state that it names."""
        kept = self.log.buffers if self.log is not None else {}
        return {file for instances in kept.values() for files in instances for file in files}

    def encode(self) -> bytes:
        """Write it as JSON with a checksum."""
        body = {
            "epoch": self.epoch,
            "generation": self.generation,
            "sources": {n: s.to_json() for n, s in self.sources.items()},
            "maps": {n: m.to_json() for n, m in self.maps.items()},
            "state": {
                n: {"marks": dict(s.marks), "segments": [x.to_json() for x in s.segments]}
                for n, s in self.state.items()
            },
            "outbox": [d.to_json() for d in self.outbox],
            "metrics": self.metrics.to_json() if self.metrics != EpochMetrics() else {},
            "elastic": {} if self.elastic is None else self.elastic.to_json(),
            "shadows": self.old_owners,
            "ended": self.ended,
            "batch": self.batch,
            "offsets": self.offsets,
            "published": self.published,
            "log": None if self.log is None else self.log.to_json(),
            "accounts": self.accounts,
        }
        body |= {} if self.form is None else {"form": self.form}
        body |= {"origins": list(self.origins)} if self.origins else {}
        text = json.dumps(body, separators=(",", ":"), sort_keys=True)
        return json.dumps(
            {"format": FORMAT, "crc": zlib.crc32(text.encode()), "body": body}, separators=(",", ":"), sort_keys=True
        ).encode()

    @staticmethod
    def decode(data: bytes) -> Manifest:
        """Read what `encode` wrote; a ValueError says what is wrong with it."""
        outer = parsed(data)
        if not isinstance(outer, dict) or "format" not in outer:
            raise ValueError("it is not a manifest")
        if outer["format"] != FORMAT:
            raise NewerFormat(f"has format {outer['format']}, but this version of Springtide reads {FORMAT}")
        body: Any = outer.get("body")
        if zlib.crc32(json.dumps(body, separators=(",", ":"), sort_keys=True).encode()) != outer.get("crc"):
            raise ValueError("its checksum does not match")
        _check(body)
        return Manifest(
            epoch=body["epoch"],
            generation=body["generation"],
            sources={n: SourceState.from_json(s) for n, s in body["sources"].items()},
            maps={n: BucketMap.from_json(m) for n, m in body["maps"].items()},
            state={
                n: SubqueryState(s["marks"], tuple(Segment.from_json(x) for x in s["segments"]))
                for n, s in body["state"].items()
            },
            outbox=tuple(known(Delivery, d) for d in body["outbox"]),
            metrics=EpochMetrics.from_json(body["metrics"]),
            elastic=ManagerState.from_json(body["elastic"]) if body["elastic"] else None,
            old_owners=body["shadows"],
            ended=body["ended"],
            batch=body["batch"],
            offsets=body.get("offsets"),
            published=body.get("published", False),
            log=None if body.get("log") is None else EpochLog.from_json(body["log"]),
            accounts=body.get("accounts", {}),
            form=body.get("form"),
            origins=tuple(body.get("origins", ())),
        )


# ── what a manifest must look like ────────────────────────────────────────────────────────────────────────────────

_LEDGER = record(
    files=may(listed(row(path("state"), whole(), whole(most=2**32 - 1)))),
    recent=may(listed(row(text, whole(), SIGNED, whole(), one_of(FATES), more=(text,)))),
    read=may(whole()),
    changed=may(whole()),
    gone=may(whole()),
)


def _position(where: str, value: Any) -> None:
    """Accept anything from the connector; if it has a ledger, check that, since it names files of the checkpoint."""
    if isinstance(value, dict) and "ledger" in value:
        _LEDGER(f"{where}.ledger", value["ledger"])


_SOURCE = record(
    position=may(_position),
    times=may(each(SIGNED)),
    ended=may(flag),
    greatest=may(SIGNED),
    accepted=may(whole()),
    late=may(whole()),
    rejected=may(whole()),
    attached=may(each(record(position=may(_position), ended=may(flag)))),
)
_SEGMENT = record(
    file=path("state"),
    kind=text,
    epoch=SIGNED,
    instance=whole(most=MOST_INSTANCES),
    version=SIGNED,
    rows=whole(),
    bytes=whole(),
    low=SIGNED,
    high=SIGNED,
    crc=may(maybe(whole(most=2**32 - 1))),
    index=may(row(whole(), whole(most=2**32 - 1))),
)
_SLICE = record(stream=text, position=SIGNED, rows=whole(), data=anything, source=text, time=SIGNED)
_LOG = record(
    times=each(each(SIGNED)),
    greatest=each(SIGNED),
    slices=each(listed(listed(_SLICE))),
    buffers=each(listed(listed(path("buffer")))),
    rows=whole(),
    idle=flag,
    memory=may(maybe(text)),
)
_BODY = record(
    epoch=whole(most=10**15),
    generation=whole(),
    sources=each(_SOURCE),
    maps=each(check_map),
    state=each(record(marks=each(SIGNED), segments=listed(_SEGMENT))),
    outbox=listed(record(sink=text, file=path("outbox"), rows=whole(), instance=whole(), digest=may(text))),
    metrics=check_metrics,
    elastic=check_manager_state,
    shadows=each(SIGNED),
    ended=flag,
    batch=maybe(whole()),
    published=may(flag),
    log=may(maybe(_LOG)),
    offsets=may(maybe(text)),
    accounts=may(each(each(SIGNED))),
    form=may(check_identity),
    origins=may(names),
)


def _check(body: Any) -> None:
    """Refuse what no run writes: above all a path that leads out of the checkpoint."""
    _BODY("it", body)
    if without := body["state"].keys() - body["maps"].keys():
        raise ValueError(f"it has state of {sorted(without)[0]}, but does not say who owns it")
