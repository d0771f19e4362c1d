"""One run as a replica: how it joins its group, agrees on what an epoch reads, and reports how far it is.

join → ( agree → report )* → leave
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from springtide.compiler.plan import Plan
from springtide.connectors import InMemory, Source
from springtide.query import steps
from springtide.query.errors import QueryError, SpringtideError
from springtide.runtime.buffers import cannot_be_read_again
from springtide.runtime.identity import identity
from springtide.runtime.patience import Patience
from springtide.runtime.replicas.cuts import Cut, Idle, Takes, digest_of
from springtide.runtime.replicas.group import KEPT, LONGEST, Founding, Group, Member, ReplicaError
from springtide.runtime.replicas.settings import Replicated
from springtide.runtime.storage import Storage
from springtide.state.errors import CheckpointError
from springtide.state.manifest import Manifest, SourceState
from springtide.state.names import REPLICA
from springtide.state.parsing import parsed
from springtide.state.published import Published

T = TypeVar("T")

_LOOK = 0.02
"""Seconds between two looks into a group that is a folder."""
_LOOK_FAR = 0.2
"""Seconds between two looks into a group in an object store."""
_REPORT = 1.0
"""Seconds between two reports of how far this replica is."""
_TRIM = 50
"""The number of epochs after which records that are no longer needed are removed."""
_CHECK = 10.0
"""Seconds between two checks whether the group has gone on without this replica."""


def check_replicable(plan: Plan) -> None:
    """Refuse a query that a second run cannot repeat, because rows can be read only once, or go to one process."""
    for name, source in plan.graph.of_kind(steps.Source).items():
        connector = source.connector
        if not isinstance(connector, Source):
            raise QueryError(
                f"{name} (source)",
                f"replicas each read all rows, and what Spark reads ({connector.describe()}) is cut into micro-batches that only its own run knows",
                "read it with a source of Springtide's own: st.kafka, st.parquet, st.csv, …",
            )
        if not connector.shareable:
            raise QueryError(
                f"{name} (source)",
                f"replicas each read all rows, and those of {connector.describe()} can be read by one run only",
                "write them to files or to a Kafka topic first, and read that; or run without replicas, with a standby",
            )
    for name, sink in plan.graph.of_kind(steps.Sink).items():
        if isinstance(sink.connector, InMemory):
            raise QueryError(
                f"{name} (sink)",
                "rows in memory would be spread over the replicas: each epoch is published by one of them",
                "give it a target that all of them reach: files, a table, a topic",
            )


def form_of(plan: Plan) -> dict[str, Any]:
    """Return what all replicas of a query have in common: its input, steps and output. Code may differ; its results are compared."""
    whole = identity(plan)
    sources = plan.graph.of_kind(steps.Source)
    return {
        "query": whole["query"],
        "steps": whole["steps"],
        "sources": {name: whole["forms"][name] for name in sources},
        "sinks": {
            name: [str(dict(sink.schema)), sink.connector.describe()]
            for name, sink in plan.graph.of_kind(steps.Sink).items()
        },
        "hash": whole["hash"],
        "polars": pl.__version__,
    }


def misfit(found: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return why a query cannot be a replica in a group, and what to do; None if it can."""
    if found.get("query") != own["query"]:
        return (
            f"is of the query {found.get('query')!r}, and not of {own['query']!r}",
            "give each query a group of its own",
        )
    for part, what in (("sources", "source"), ("steps", "step"), ("sinks", "sink")):
        theirs, ours = found.get(part, {}), own[part]
        for name in sorted({*theirs, *ours}):
            if theirs.get(name) != ours.get(name):
                problem = (
                    "is not in it" if name not in theirs else "is not here" if name not in ours else "is another one"
                )
                return (
                    f"runs another form of the query: the {what} {name} {problem}",
                    "replicas run the same query, with the same targets: change it in all of them, with a new group",
                )
    if found.get("hash") != own["hash"]:
        return (
            f"was begun with Polars {found.get('polars')}, which hashes in another way than {own['polars']} here: rows could not be compared",
            f"use Polars {found.get('polars')}",
        )
    return None


@dataclass
class Replica:
    """This run in its group."""

    settings: Replicated
    plan: Plan
    patience: Patience
    timer: Callable[[], float]
    note: Callable[[str], None]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        """Refuse what cannot work; touch nothing."""
        check_replicable(self.plan)
        self.group, self.name = Group(self.settings.store), self.settings.name
        self.pause = _LOOK if self.group.store.local is not None else _LOOK_FAR
        self._leads = True
        self._next_look = self._next_check = float("-inf")
        self._reported = float("-inf")
        self._alarms: set[str] = set()
        self._place = self._id = ""
        self._has_joined = False

    # ── joining and leaving ───────────────────────────────────────────────────────────────────────────────────────

    def join(self, storage: Storage) -> None:
        """Take part; create the group if there is none. A run that does not belong to it is refused before anything is read or written."""
        group, form = self.group, form_of(self.plan)
        self._check_own(storage)
        founding = self._ask(group.founding)
        if founding is None:
            self._ask(lambda: group.found(self._founding(storage, form)))
            founding = self._ask(group.founding)
            assert founding is not None
        if (why := misfit(founding.form, form)) is not None:
            raise self._error(*why)
        self.founding, self._id, self._place = founding, storage.lineage.id, storage.checkpoint.store.url
        self._check_state(storage)
        self._check_name(storage.manifest)
        group.join(self._id, self.name)
        storage.checkpoint.store.write(REPLICA, f'{{"group": "{founding.lineage.id}"}}'.encode())
        self._has_joined = True
        self.report(storage.manifest, now=True)
        self._check_log(storage.manifest.epoch)

    def leave(self, manifest: Manifest) -> None:
        """Record that this replica is no longer running. The group keeps what the replica needs to come back."""
        if not self._has_joined:
            return
        try:
            self._write_member(manifest, running=False)
        except (OSError, SpringtideError) as error:
            self.note(str(error))

    def _founding(self, storage: Storage, form: Mapping[str, Any]) -> Founding:
        manifest, published = storage.manifest, storage.published or Published()
        sinks = self.plan.graph.of_kind(steps.Sink)
        if manifest.epoch >= 0 and not manifest.published and not all(published.has(manifest.epoch, s) for s in sinks):
            raise CheckpointError(
                storage.checkpoint.store.url,
                f"has rows of epoch {manifest.epoch} that the sinks do not have yet",
                "start the query once without replicas, and stop it; then start it as a replica",
            )
        return Founding(storage.lineage.copied(manifest.epoch), manifest.epoch, published, form)

    def _check_own(self, storage: Storage) -> None:
        """Refuse a checkpoint that takes part in another group."""
        mark = read_mark(storage)
        founding = self._ask(self.group.founding)
        if mark is not None and (founding is None or mark != founding.lineage.id):
            raise CheckpointError(
                storage.checkpoint.store.url,
                f"belongs to a replica in another group than {self.group.store.url}",
                "give the group that it was in, or a new checkpoint",
            )

    def _check_name(self, manifest: Manifest) -> None:
        own = self._member(manifest)
        other = self._ask(lambda: self.group.named(own))
        if other.id != self._id:
            raise self._error(
                f"has a replica {self.name} already, with the checkpoint {other.checkpoint}",
                f"give another name; if that one is gone for good: springtide replicas {self.group.store.url} --release {self.name}",
            )

    def _check_state(self, storage: Storage) -> None:
        """Refuse state that was not made in this group."""
        founding, lineage, epoch = self.founding, storage.lineage, storage.manifest.epoch
        if epoch < 0 and founding.epoch < 0:
            return
        if (lineage.id, epoch) in founding.lineage.ancestors or self._ask(lambda: self.group.has_joined(lineage.id)):
            return
        if epoch >= founding.epoch and any(e == epoch and self._belongs(id, e) for id, e in lineage.ancestors):
            return
        what = "is empty" if epoch < 0 else f"has a state of its own, of epoch {epoch}"
        raise CheckpointError(
            storage.checkpoint.store.url,
            f"{what}, and cannot take part in the group {self.group.store.url}, which continued from epoch {founding.epoch} of another",
            "start with a new checkpoint, from a savepoint of one of its replicas: springtide checkpoint save CKPT NAME",
        )

    def _belongs(self, id: str, epoch: int) -> bool:
        return (id, epoch) in self.founding.lineage.ancestors or self._ask(lambda: self.group.has_joined(id))

    def _check_log(self, epoch: int) -> None:
        """Refuse to continue if the group has forgotten what came next."""
        if not self._ask(lambda: self.group.remembers(epoch, self.founding)):
            raise self.behind(epoch)

    def behind(self, epoch: int) -> ReplicaError:
        """Return the error for a replica that was away for too long."""
        return self._error(
            f"no longer has what came after epoch {epoch}, where replica {self.name} is",
            "start it with a new checkpoint, from a savepoint of another replica: springtide checkpoint save CKPT NAME, then --savepoint",
        )

    # ── what an epoch reads ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def leads(self) -> bool:
        """Whether this replica was the last to decide what an epoch reads: if so it looks at its sources first, otherwise into the log."""
        return self._leads

    def found(self, epoch: int, states: Mapping[str, SourceState], *, at_once: bool) -> Cut | None:
        """Return what an epoch reads, if that has been decided; unless it is needed `at_once`, look only now and then."""
        now = self.timer()
        if not at_once and now < self._next_look:
            return None
        self._next_look = now + self.pause
        cut = self._ask(lambda: self.group.cut(epoch))
        if cut is not None:
            self._leads = False
            return self._checked(epoch, cut, states)
        if now >= self._next_check:
            self._next_check = now + _CHECK
            self._check_log(epoch - 1)
        return None

    def proposed(self, epoch: int, states: Mapping[str, SourceState], takes: Takes, idle: Idle) -> Cut:
        """Propose what an epoch reads; return what is decided, which may be another replica's proposal."""
        for source, found in takes.items():
            if cannot_be_read_again([take.slices for take in found.values()]):
                raise QueryError(
                    f"{source} (source)",
                    "its slices cannot be written down as plain JSON, so other replicas cannot read them",
                    "a source for replicas has nothing but text, numbers and lists in Slice.data",
                )
        cut = Cut(digest_of(states), self.name, takes, idle)
        self._leads = self._ask(lambda: self.group.propose(epoch, cut))
        self._check_log(epoch - 1)  # after the proposal: the epoch may have been decided long ago, and forgotten
        decided = self._ask(lambda: self.group.cut(epoch))
        if decided is None:
            raise self.behind(epoch - 1)
        return self._checked(epoch, decided, states)

    def _checked(self, epoch: int, cut: Cut, states: Mapping[str, SourceState]) -> Cut:
        if cut.before != digest_of(states):
            raise self._error(
                f"has an epoch {epoch} that continues from elsewhere: replica {self.name} has not read what {cut.by} had read before it",
                "its checkpoint is of no use here: start it with a new one, from a savepoint of another replica",
            )
        return cut

    # ── how far it is ─────────────────────────────────────────────────────────────────────────────────────────────

    def report(self, manifest: Manifest, *, now: bool = False) -> None:
        """Report now and then how far this replica is, remove what is no longer needed, and note the alarms of others."""
        if now or self.timer() >= self._reported + _REPORT:
            self._reported = self.timer()
            self._ask(lambda: self._write_member(manifest))
            for alarm in self._ask(self.group.alarms):
                if alarm not in self._alarms:
                    self._alarms.add(alarm)
                    self.note(f"alarm: {alarm}")
        if manifest.epoch % _TRIM == _TRIM - 1:
            self._ask(lambda: self._trim(manifest.epoch))

    def _write_member(self, manifest: Manifest, *, running: bool = True) -> None:
        self.group.write_member(self._member(manifest, running=running))

    def _member(self, manifest: Manifest, *, running: bool = True) -> Member:
        by = f"process {os.getpid()} on {socket.gethostname()}"
        instances = {name: found.instances for name, found in manifest.maps.items()}
        return Member(self.name, self._id, self._place, manifest.epoch, running, by, instances, pl.__version__)

    def _trim(self, epoch: int) -> None:
        slowest = min((m.epoch for m in self.group.members()), default=epoch)
        self.group.trim(max(min(slowest, epoch - KEPT), epoch - LONGEST))

    def _ask(self, action: Callable[[], T]) -> T:
        return self.patience.attempt(f"{self.name} (replica)", action)

    def _error(self, problem: str, hint: str) -> ReplicaError:
        return ReplicaError(self.group.store.url, problem, hint)


def read_mark(storage: Storage) -> str | None:
    """Return the group that a checkpoint takes part in; None if it was never a replica's."""
    try:
        return str(parsed(storage.checkpoint.store.read(REPLICA))["group"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return ""


def refuse_alone(storage: Storage) -> None:
    """Refuse to run a replica's checkpoint without its group: others may publish what it is about to do."""
    if read_mark(storage) is not None:
        raise CheckpointError(
            storage.checkpoint.store.url,
            "is a replica's: other replicas may run the same query, and have the same sinks",
            "start it as one: replicas=st.Replicated(GROUP, NAME), or --replica-of GROUP --as NAME; a savepoint of it can be run alone, with other targets",
        )
