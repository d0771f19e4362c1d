"""Rows to the sinks where several replicas have them: one replica publishes each epoch, and the others see that and go on.

Who publishes is decided by turns (`springtide.runtime.replicas.turns`). To the sinks all replicas are runs of one checkpoint, the group, and each turn
that changes hands is a newer run: the replica that had the turn before can no longer write. A replica that takes over a turn asks every sink whether
it has the epoch, by the marks of the turns before; what it has is finished under that mark, since the rows are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from springtide.compiler.plan import Plan
from springtide.connectors import Owner, ParquetFiles, Sink, Writer, commit_of
from springtide.query.errors import SpringtideError
from springtide.query.ids import EpochNumber, Generation
from springtide.runtime.failpoints import failpoint
from springtide.runtime.patience import Patience
from springtide.runtime.publishing import Publishing
from springtide.runtime.replicas.group import OtherRows, ReplicaError
from springtide.runtime.replicas.replica import Replica
from springtide.runtime.replicas.turns import (
    Digests,
    EpochDone,
    Turn,
    TurnChoice,
    choose_turn,
    difference,
    digests_of,
    term_after,
)
from springtide.runtime.storage import Storage
from springtide.state.disk import beside, settle
from springtide.state.manifest import Delivery
from springtide.state.published import Published

T = TypeVar("T")

_GRACE = 0.1
"""The head start of the replica that published last and has the sinks open: a share of the time between two epochs, or of `after` if that is shorter."""
_ANY_TERM = 2**62
"""The term of a replica that only asks."""
_TOGETHER = "together.parquet"


class _Overtaken(SpringtideError):
    """Another replica has the turn now."""


class SharedPublishing(Publishing):
    """The sinks of a query with replicas, as one of the replicas sees them."""

    def __init__(
        self,
        plan: Plan,
        storage: Storage,
        patience: Patience,
        note: Callable[[str], None],
        replica: Replica,
        timer: Callable[[], float],
    ) -> None:
        """Name them; nothing is touched yet."""
        super().__init__(plan, storage, patience, note)
        self._replica, self._group, self._timer = replica, replica.group, timer
        self._turn: Turn | None = None
        """The turn that the sinks are open for."""
        self._last: Turn | None = None
        """The last turn that this run had, whatever came of it."""
        self._began, self._pace = timer(), 0.0

    # ── at the start, and at the end ──────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        """Ask every sink whether it accepts the group, if none has rows of it yet; no sink is opened before it is this replica's turn."""
        founding = self._replica.founding
        self._checkpoint = founding.lineage.id
        if self._has_published():
            return
        for name, sink in self._connectors.items():
            owner = self._as_group(name, founding.epoch + 1, _ANY_TERM, founding.published)
            try:
                self._attempt(name, partial(sink.admit, owner))
            except SpringtideError:
                if self._has_published():  # by now
                    return
                raise

    def _has_published(self) -> bool:
        """Return whether the group has published anything."""
        founding = self._replica.founding
        if self._ask_group(partial(self._group.done, founding.epoch + 1)) is not None:
            return True
        return not self._ask_group(partial(self._group.remembers, founding.epoch, founding))

    def begin(self) -> None:
        """Publish what the last run may not have published. What a savepoint leaves to the replica it was made from must have reached the sinks."""
        manifest = self._storage.manifest
        if manifest.epoch < 0:
            self._storage.remember(Published(), durable=True)
        if not manifest.published or manifest.epoch <= self._replica.founding.epoch:
            self.publish()
            return
        until = self._timer() + max(30.0, 4 * self._replica.settings.seconds)
        while self._group.done(manifest.epoch) is None and self._group.newest() < manifest.epoch:
            if self._timer() >= until:
                raise ReplicaError(
                    self._group.store.url,
                    f"has not published epoch {manifest.epoch}, which this replica's savepoint is of",
                    "start the replica that the savepoint is of, or begin with an earlier one",
                )
            if not self._wait():
                raise SpringtideError("the query was stopped before it had begun")

    def close(self) -> None:
        """Close the sinks, and record what they have."""
        self._close_writers()
        if self._done.epoch >= 0:
            self._storage.remember(self._done, durable=True)

    # ── with every epoch ──────────────────────────────────────────────────────────────────────────────────────────

    def publish(self) -> None:
        """Make sure that the sinks have the rows of the last committed epoch, from this replica or from another."""
        manifest = self._storage.manifest
        if manifest.epoch <= self._replica.founding.epoch or manifest.published:
            return
        mine, finished = digests_of(manifest.outbox), self._timer()
        grace = _GRACE * min(self._pace, self._replica.settings.seconds)  # input may have been silent for an hour
        turns: tuple[Turn, ...] = ()
        changed = finished
        while True:
            done = self._ask_group(lambda: self._group.done(manifest.epoch))
            if done is not None:
                self._compare(done.by, mine, done.digests)
                self._done = done.published
                break
            seen = self._ask_group(partial(self._group.turns, manifest.epoch, turns))
            if seen != turns:
                turns, changed = seen, self._timer()
                self._compare(turns[-1].by, mine, turns[-1].digests)
            what = choose_turn(
                done=False,
                turns=turns,
                name=self._replica.name,
                token=self._replica.token,
                first=self._is_first(manifest.epoch),
                waited=self._timer() - changed,
                grace=grace,
                after=self._replica.settings.seconds,
            )
            if what is TurnChoice.WAIT:
                if (
                    not self._wait()
                ):  # the run is to stop, but not before this is published: soon it takes the turn itself
                    time.sleep(self._replica.pause)
            elif self._take_turn(manifest.epoch, turns, mine):
                break
        self._pace, self._began = self._timer() - self._began, self._timer()
        self._storage.remember(self._done, durable=False)

    def _is_first(self, epoch: int) -> bool:
        return self._last is not None and self._last.epoch == epoch - 1 and self._turn == self._last

    def _take_turn(self, epoch: EpochNumber, before: Sequence[Turn], mine: Digests) -> bool:
        """Try to publish; return False if another replica has the turn, or has taken it meanwhile."""
        last = before[-1] if before else self._last_of(epoch - 1)
        sinks = self._connectors
        waiting = {name: [d for d in self._storage.manifest.outbox if d.sink == name] for name in self._sinks}
        marks = {name: commit_of([Path(d.file).name for d in of]) for name, of in waiting.items() if of}
        replica = self._replica
        term = term_after(last, replica.token)
        turn = Turn(epoch, len(before) + 1, term, replica.name, replica.token, mine, marks)
        failpoint("before-turn")
        if not self._ask_group(partial(self._group.take, turn)):
            return False
        self._last = turn
        published = self._published_before(epoch)
        failpoint("after-turn")
        try:
            if self._turn is None or self._turn.term != term or self._opened.keys() != sinks.keys():
                self._open_writers(turn, published)
            for name, sink in self._sinks.items():
                mark = self._mark(name, before) or marks.get(name, "")
                self._attempt(name, partial(self._bring, turn, name, mark))
                published = published.after(epoch, name, sink.connector.describe(), mark or None)
                failpoint("during-publish")
        except _Overtaken:
            return False
        except SpringtideError as error:
            if isinstance(error, ReplicaError) or not self._is_overtaken(turn):
                raise
            return False  # the sink refused this replica because it no longer has the turn
        if not published.sinks.issuperset(self._sinks):
            published = Published(epoch, frozenset(self._sinks), published.past)
        self._turn = turn
        failpoint("before-done")
        self._ask_group(partial(self._group.finish, EpochDone(epoch, replica.name, mine, published)))
        self._done = published
        return True

    def _last_of(self, epoch: int) -> Turn | None:
        """Return the last turn of an epoch that is done."""
        own = self._last
        known = (own,) if own is not None and own.epoch == epoch and own.number == 1 else ()
        turns = (
            self._ask_group(partial(self._group.turns, epoch, known)) if epoch > self._replica.founding.epoch else ()
        )
        return turns[-1] if turns else None

    def _published_before(self, epoch: int) -> Published:
        """Return what the sinks had before an epoch. It is looked up after the turn was taken: if it is gone, the turn was already taken long ago."""
        founding = self._replica.founding
        if epoch - 1 <= founding.epoch:
            if not self._ask_group(partial(self._group.remembers, epoch - 1, founding)):
                raise self._replica.behind(epoch - 1)
            return founding.published
        done = self._ask_group(partial(self._group.done, epoch - 1))
        if done is None:
            raise self._replica.behind(epoch - 1)
        return done.published

    def _check_turn(self, turn: Turn) -> None:
        if self._is_overtaken(turn):
            raise _Overtaken
        self._storage.check()

    def _is_overtaken(self, turn: Turn) -> bool:
        if not self._ask_group(partial(self._group.has_turn, turn.epoch, turn.number + 1)):
            return self._ask_group(partial(self._group.done, turn.epoch)) is not None
        return True

    def _compare(self, by: str, mine: Digests, others: Digests) -> None:
        """Raise the alarm if two replicas made different rows from the same input."""
        epoch, name = self._storage.manifest.epoch, self._replica.name
        other = by if by != name else f"{by} before"  # an earlier run of this replica, perhaps with other code
        if (what := difference({other: others, name: mine})) is None:
            return
        text = f"replicas {other} and {name} made different rows in epoch {epoch}: {what}"
        self._note(f"alarm: {text}")
        self._ask_group(lambda: self._group.alarm(epoch, name, text))
        raise OtherRows(
            self._group.store.url,
            f"can no longer include {name}: {text}; those of {other} count",
            "find out which of the two is right: code that is not the same, or that depends on time, order or chance; then start with a new checkpoint from a savepoint of the other",
        )

    # ── the sinks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_writers(self, turn: Turn, published: Published) -> None:
        self._close_writers()
        for name, sink in self._connectors.items():
            owner = self._as_group(name, turn.epoch, turn.term, published)
            self._opened[name] = self._attempt(name, partial(self._open_writer, turn, sink, owner))
        self._writers |= self._opened

    def _open_writer(self, turn: Turn, sink: Sink, owner: Owner) -> Writer:
        """Open a sink; a replica that cannot reach it must not try for longer than its turn lasts."""
        self._check_turn(turn)
        return sink.open(owner)

    def _close_writers(self) -> None:
        """Close the sinks; one that another replica has opened meanwhile may refuse even that."""
        opened, self._opened, self._turn = self._opened, {}, None
        for name, writer in opened.items():
            try:
                writer.close()
            except Exception as error:
                self._note(f"step {name} (sink): {error}")

    def _as_group(self, sink: str, epoch: int, term: int, published: Published) -> Owner:
        return Owner(
            self._query,
            sink,
            self._replica.founding.lineage,
            Generation(term),
            EpochNumber(epoch),
            None,
            published.given(sink, self._connectors[sink].describe()),
            schema=self._sinks[sink].schema,
            note=lambda text: self._note(f"step {sink} (sink): {text}"),
        )

    def _mark(self, sink: str, before: Sequence[Turn]) -> str | None:
        """Return the mark under which a sink has the epoch from another replica's turn; None if it does not have it, or cannot tell."""
        writer = self._writers[sink]
        if type(writer).has is Writer.has:
            return None
        for turn in before:
            mark = turn.marks.get(sink)
            if mark is not None and self._attempt(sink, partial(writer.has, turn.epoch, mark)):
                return mark
        return None

    def _bring(self, turn: Turn, name: str, mark: str) -> None:
        self._check_turn(turn)
        self._give(name, self._sinks[name], mark)

    def _files(self, sink: str, deliveries: Sequence[Delivery]) -> Sequence[tuple[Path, int]]:
        """Return a single file for a sink that takes files as they are: a replica with more or fewer instances may have to finish what this one began."""
        root = self._storage.checkpoint.root
        files = [(root / d.file, d.rows) for d in deliveries]
        connector = self._connectors.get(sink)
        if len(files) < 2 or connector is None or not isinstance(connector.outbox, ParquetFiles):
            return files
        target = files[0][0].with_name(f"{sink}-{_TOGETHER}")
        if not target.exists():
            part = beside(target)
            found = [super(SharedPublishing, self)._find(sink, path) for path, _ in files]
            connector.outbox.write(pl.concat([pl.read_parquet(path, glob=False) for path in found]), part)
            settle(part, target)
        return [(target, sum(rows for _, rows in files))]

    def _find(self, sink: str, path: Path) -> Path:
        return path if path.name.endswith(_TOGETHER) else super()._find(sink, path)

    # ── small things ──────────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self) -> bool:
        """Wait for a moment; return False if the run is to stop."""
        self._storage.check()
        return self._patience.wait(self._replica.pause)

    def _ask_group(self, action: Callable[[], T]) -> T:
        return self._patience.attempt(f"{self._replica.name} (replica)", action)
