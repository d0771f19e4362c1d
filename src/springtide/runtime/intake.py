"""What comes into an epoch: slices of every source, and stream times that move without rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from springtide.connectors import Feed, Lineage, Owner, Slice, Source, Take
from springtide.exchange import gate
from springtide.exchange.blob import Times
from springtide.query import steps
from springtide.query.connectors import ONE_STREAM
from springtide.query.errors import QueryError, nearest, shown
from springtide.query.ids import Generation, Micros
from springtide.query.types import END_OF_TIME
from springtide.runtime.admission import Admission
from springtide.runtime.epoch import Epoch, Taken, TaskReport
from springtide.runtime.idleness import PhysicalStream, idle_streams
from springtide.runtime.ledgers import Ledgers
from springtide.runtime.patience import Patience, of_a_connector, said
from springtide.runtime.planning import with_times
from springtide.runtime.replicas.cuts import Cut, own
from springtide.runtime.replicas.replica import Replica
from springtide.sources.spark import two_topics
from springtide.state.manifest import InputState, SourceState

States = Mapping[str, SourceState]

_MAIN = ""
"""The name of a source's own connector among those that were attached."""


class Intake:
    """The sources of a query as the driver sees them. It decides what the next epoch reads; nothing is read here."""

    def __init__(
        self,
        sources: Mapping[str, steps.Source],
        admission: Admission,
        timer: Callable[[], float],
        patience: Patience,
        ledgers: Ledgers,
        note: Callable[[str], None] = lambda _: None,
        replica: Replica | None = None,
    ) -> None:
        """Begin with each source's own connector. A `replica` agrees with others on what an epoch takes."""
        self._sources, self._admission, self._timer, self._patience = sources, admission, timer, patience
        self._ledgers, self._note, self._replica = ledgers, note, replica
        self._agreed: Cut | None = None
        """What the replicas take in the next epoch."""
        self._noted: dict[tuple[str, str], tuple[str, ...]] = {}
        self._connectors: dict[str, dict[str, Source]] = {
            name: {_MAIN: s.connector} if isinstance(s.connector, Source) else {} for name, s in sources.items()
        }
        self._feeds: dict[tuple[str, str], Feed] = {}
        """(source, label) → its feed, once it is opened."""
        self._owner: Callable[[str], Owner] = lambda name: Owner("", name, Lineage(""), Generation(0), kind="source")
        self._released = -1
        self._detached: dict[str, set[str]] = {}
        self._seen: dict[tuple[str, str], float] = {}
        """When each physical stream last had rows, by the timer; if it had none yet, when it was first seen."""
        self._by_spark = frozenset(n for n, s in sources.items() if not isinstance(s.connector, Source))
        self._began = self._heard = timer()
        self.waiting: dict[str, int] = {}
        """Source that Spark reads → rows that are there but were in no micro-batch yet, as far as Spark says."""
        self.takes: dict[str, dict[str, Take]] = {}
        """Source → input → what it has for the next epoch."""

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    def open(self, owner: Callable[[str], Owner]) -> None:
        """Open every source before anything is read; `owner` says to each whose run it is."""
        self._owner = owner
        self.open_new()

    def open_new(self) -> None:
        """Open every source that is not open."""
        for name, connectors in self._connectors.items():
            for label in connectors:
                self._patience.attempt(f"{name} (source)", partial(self._feed, name, label), of_a_connector)

    def committed(self, epoch: int, states: States) -> None:
        """Tell the sources what no run will read again: the epoch, and the state that it left, are durable."""
        if epoch <= self._released:
            return
        self._released = epoch
        for (name, label), feed in self._feeds.items():
            state = states.get(name, SourceState())
            position = _position_of(state, label)
            if position is not None:
                self._try(name, partial(feed.committed, position))

    def close(self) -> None:
        """Close every source, whatever has happened."""
        for name, label in list(self._feeds):
            self._close(name, label)

    def replace(self, before: Intake) -> None:
        """Continue for another form of the query: the feeds of a source that stays are kept, unless it has another connector.

        Then the old feed is closed, since it may hold something that only one can hold; if it is needed again, it is opened again.
        """
        self._owner, self._released, self._heard = before._owner, before._released, before._heard
        self._seen, self._noted, self._detached = dict(before._seen), dict(before._noted), dict(before._detached)
        self.waiting = dict(before.waiting)
        for name, connectors in self._connectors.items():
            for label, connector in before._connectors.get(name, {}).items():
                if label != _MAIN:
                    connectors[label] = connector
                if (name, label) not in before._feeds:
                    continue
                if is_same(connector, connectors[label]):
                    self._feeds[name, label] = before._feeds[name, label]
                else:
                    before._close(name, label)

    def close_others(self, other: Intake) -> None:
        """Close what another form reads and this one does not."""
        for key, feed in list(other._feeds.items()):
            if self._feeds.get(key) is not feed:
                other._close(*key)

    def _feed(self, name: str, label: str) -> Feed:
        if (name, label) not in self._feeds:
            self._feeds[name, label] = self._connectors[name][label].open(
                replace(self._owner(name), schema=self._sources[name].columns)
            )
        return self._feeds[name, label]

    def _close(self, name: str, label: str) -> None:
        feed = self._feeds.pop((name, label), None)
        if feed is not None:
            self._try(name, feed.close)

    def _try(self, name: str, action: Callable[[], None]) -> None:
        """Do something that may fail without harm to any row, and report it if it does."""
        try:
            action()
        except Exception as error:
            self._note(f"step {name} (source): {said(error)}")

    # ── attaching and detaching (ST-3) ────────────────────────────────────────────────────────────────────────────

    def attach(self, source: str, label: str, connector: Source, states: States) -> None:
        """Let a source read another input too, from the next epoch on. Rows before the source's time are late."""
        self._known(source)
        if self._replica is not None:
            raise QueryError(
                f"{source} (source)",
                "an input cannot be attached to one replica: the others do not know it",
                "add it to the query, in all replicas",
            )
        wanted, found = self._sources[source].columns, connector.schema()
        if found != wanted:
            raise QueryError(
                f"{source} (source)",
                f"{connector.describe()} has the columns {dict(found)}",
                f"an input of this source has {dict(wanted)}",
            )
        if not label or "/" in label or label in self._connectors[source]:
            raise QueryError(
                f"{source} (source)", f"an input cannot be attached as {label!r}", "give a new name without '/'"
            )
        if states.get(source, SourceState()).ended:
            raise QueryError(f"{source} (source)", "has ended", "attach inputs while the source is still read")
        if not isinstance(connector, Source) or (lacking := connector.incomplete()) is not None:
            problem = (
                lacking if isinstance(connector, Source) else f"{shown(connector)} is not a source that tasks can read"
            )
            raise QueryError(f"{source} (source)", problem, "derive it from springtide.connectors.Source")
        self._connectors[source][label] = connector

    def detach(self, source: str, label: str) -> None:
        """Stop reading an input; it holds the others back no longer."""
        self._known(source)
        if label == _MAIN or label not in self._connectors[source]:
            labels = [n for n in self._connectors[source] if n]
            raise QueryError(f"{source} (source)", f"has no input {label!r}", nearest(label, labels))
        self._close(source, label)
        del self._connectors[source][label]
        self._detached.setdefault(source, set()).add(label)

    def _known(self, source: str) -> None:
        if source not in self._sources:
            raise QueryError(f"{source} (unknown)", "the query has no such source", nearest(source, self._sources))

    # ── the next epoch ────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, states: States, epoch: int = 0) -> bool:
        """Look at the sources; return whether the next epoch would do anything now: new rows, an end, or time that moves on.

        A replica takes what was agreed upon for that epoch; if nothing was, it proposes what it sees itself.
        """
        if self._replica is None:
            return self._look(states)
        leads, self._agreed = self._replica.leads, None
        cut = None if leads else self._replica.found(epoch, states, at_once=False)
        if cut is None and self._look(states):
            cut = self._replica.proposed(epoch, states, self.takes, self._idle(states))
        if cut is None and leads:
            cut = self._replica.found(epoch, states, at_once=False)
        if cut is not None:
            self._take_over(cut, states)
        return cut is not None

    def _take_over(self, cut: Cut, states: States) -> None:
        """Take what the replicas have agreed upon."""
        self._agreed, now = cut, self._timer()
        self.takes = {}
        for name, takes in cut.takes.items():
            state = states.get(name, SourceState())
            self.takes[name] = {
                label: replace(take, position=own(take.position, _position_of(state, label)))
                for label, take in takes.items()
            }
            for label, take in takes.items():
                for stream in take.streams:
                    self._seen.setdefault((name, _qualified(label, stream)), now)
                for part in take.slices:
                    self._seen[name, _qualified(label, part.stream)] = now

    def _look(self, states: States) -> bool:
        self.takes = {}
        for name in self._sources:
            state = states.get(name, SourceState())
            if not state.ended:
                self.takes[name] = {
                    label: self._take(name, label, state)
                    for label in self._connectors[name]
                    if not _is_over(state, label)
                }
        return (
            any(self._is_news(name, states) for name in self.takes) or bool(self._detached) or bool(self._idle(states))
        )

    def _is_news(self, name: str, states: States) -> bool:
        state = states.get(name, SourceState())
        for label, take in self.takes[name].items():
            before = _position_of(state, label)
            moved = any(time > state.times.get(_qualified(label, s), gate.BEGINNING) for s, time in take.times.items())
            if take.slices or take.ended or moved or take.position != before:
                return True
        return False

    def connector(self, source: str) -> Source:
        """Return a source's own connector."""
        return self._connectors[source][_MAIN]

    @property
    def reads(self) -> bool:
        """Return whether any source is read in Python."""
        return any(self._connectors.values())

    @property
    def backlog(self) -> int:
        """Rows that are there but not taken."""
        return sum(self.backlogs().values())

    def backlogs(self) -> dict[str, int]:
        """Return the rows that are there but not taken, by source."""
        return {
            name: sum(t.backlog for t in takes.values()) + self.waiting.get(name, 0)
            for name, takes in self.takes.items()
        }

    def admitted(self, reports: Sequence[TaskReport]) -> tuple[int, int]:
        """Return how many rows the epoch got from the source that gave the most, and how many it could not take, of what is read in Python."""
        ours = [name for name, takes in self.takes.items() if takes]
        kinds = (
            "accepted",
            "late",
            "rejected",
        )  # what slices say of a topic are offsets, which need not have a record each
        got = (sum(r.sources.get(name, {}).get(kind, 0) for r in reports for kind in kinds) for name in ours)
        return max(got, default=0), sum(take.backlog for name in ours for take in self.takes[name].values())

    @property
    def fails(self) -> bool:
        """Whether a test wants the process to die here."""
        return any(t.fail for takes in self.takes.values() for t in takes.values())

    def plan(self, states: States) -> Taken:
        """Return what the epoch takes of each source, with the stream times before its rows, dummies and ends among them."""
        times = {name: dict(states.get(name, SourceState()).times) for name in self._sources}
        slices: dict[str, list[Slice]] = {}
        for name, takes in self.takes.items():
            start = gate.start(states.get(name, SourceState()).times)
            for label, take in takes.items():
                for stream in take.streams:
                    times[name].setdefault(_qualified(label, stream), start)
                parts = [self._placed(label, s, self._connectors[name][label]) for s in take.slices]
                slices.setdefault(name, []).extend(
                    with_times(name, parts, times[name], self._sources[name].max_disorder, start)
                )
        for name, takes in self.takes.items():
            for label, take in takes.items():
                moved = dict(take.times)
                if take.ended:  # whether or not the source says so of every stream: what is open ends with them
                    streams = {*take.streams, *(part.stream for part in take.slices)} or {ONE_STREAM}
                    moved |= dict.fromkeys(streams, END_OF_TIME)
                for stream, time in moved.items():
                    _move(times[name], _qualified(label, stream), Micros(time))
        for name, labels in self._detached.items():
            for stream in times[name]:
                if stream.partition("/")[0] in labels and "/" in stream:
                    times[name][stream] = END_OF_TIME
        idle = self._idle(states)
        for (name, stream), upto in idle.items():
            _move(times[name], stream, upto)
        return Taken(times, self._greatest(states, idle), slices, bool(idle))

    def _greatest(self, states: States, idle: Mapping[PhysicalStream, Micros]) -> dict[str, Micros]:
        """Return the greatest time that each source had before the epoch, or that a dummy brings in it."""
        greatest = {name: states.get(name, SourceState()).greatest for name in self._sources}
        dummies = [(name, t.greatest) for name, takes in self.takes.items() for t in takes.values()]
        dummies += [(name, time) for (name, _), time in idle.items()]
        for name, time in dummies:
            if time is not None:
                greatest[name] = max(Micros(time), greatest[name])
        return greatest

    def after(self, states: States, epoch: Epoch, reports: Sequence[TaskReport]) -> dict[str, SourceState]:
        """Return the states of the sources after the epoch, as far as they are decided here."""
        times = gate.later(epoch.times, [r.times for r in reports])
        return {
            name: self._after(
                name,
                states.get(name, SourceState()),
                times.get(name, {}),
                [r.topics.get(name, {}) for r in reports],
            )
            for name in self._sources
        }

    def _after(
        self, name: str, before: SourceState, times: Mapping[str, Micros], topics: Iterable[Mapping[str, str]]
    ) -> SourceState:
        """Return the state of one source; `topics` are those that tasks saw."""
        takes = self.takes.get(name, {})
        attached = {n: a for n, a in before.attached.items() if n not in self._detached.get(name, ())}
        attached |= {n: InputState(t.position, t.ended) for n, t in takes.items() if n != _MAIN}
        main = takes.get(_MAIN)
        main_ended = main.ended if main is not None else _MAIN in self._connectors[name] and _is_over(before, _MAIN)
        state = replace(
            before, times=dict(times), attached=attached | {_MAIN: InputState(ended=True)} if main_ended else attached
        )
        if main is not None:
            state = replace(state, position=main.position)
        elif name in self._by_spark:
            state = replace(state, position=_with_topics(name, before.position, topics))
        others = all(a.ended for n, a in attached.items() if n)
        return replace(state, ended=main_ended and others)

    def done(self) -> None:
        """Forget what was for the epoch that is committed now."""
        self.takes, self._detached, self._agreed = {}, {}, None

    # ── what Spark reads ──────────────────────────────────────────────────────────────────────────────────────────

    def nothing_new(self) -> None:
        """Note that Spark has just looked and found no rows: streams that were silent still are."""
        self._heard, self.waiting = self._timer(), {}

    def micro_batch(self, began: float, streams: Iterable[Times]) -> None:
        """Note which physical streams had rows in a micro-batch. Others are known to have been silent up to its beginning, not longer.

        What came while it was at work is in the next one: the time that an epoch takes does not count as silence.
        """
        self._heard = max(began, self._heard)
        for seen in streams:
            for name in self._by_spark.intersection(seen):
                self._seen |= {(name, stream): began for stream in seen[name]}

    def _silence(self, key: PhysicalStream, now: float) -> float:
        """Return for how many seconds a physical stream is known to have had no rows."""
        name, stream = key
        if name in self._by_spark and stream.partition("/")[0] not in self._connectors[name]:
            return self._heard - self._seen.get(key, self._began)
        return now - self._seen.get(key, now)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, name: str, label: str, state: SourceState) -> Take:
        before = _position_of(state, label)
        connector = self._connectors[name][label]
        position = self._ledgers.opened(name, label, connector.beginning if before is None else before)
        take = self._patience.attempt(
            f"{name} (source)",
            lambda: self._feed(name, label).take(position, self._admission.limit, self._sources[name].ts),
            of_a_connector,
        )
        after = self._ledgers.closed(take.position)
        take = replace(take, position=None if before is None and after == connector.beginning else after)
        for note in take.notes:
            if note not in self._noted.get((name, label), ()):  # the last look has already reported it
                self._note(f"step {name} (source): {note}")
        self._noted[name, label] = take.notes
        now = self._timer()
        for stream in take.streams:
            self._seen.setdefault((name, _qualified(label, stream)), now)
        for part in take.slices:
            self._seen[name, _qualified(label, part.stream)] = now
        return take

    def _placed(self, label: str, part: Slice, connector: Source) -> Slice:
        return part if label == _MAIN else replace(part, stream=_qualified(label, part.stream), reader=connector)

    def _idle(self, states: States) -> dict[PhysicalStream, Micros]:
        """Decide which physical streams hold the others back no longer, and up to which time."""
        if self._agreed is not None:
            return dict(self._agreed.idle)
        if all(s.idle_after is None for s in self._sources.values()):
            return {}
        now = self._timer()
        return idle_streams(self._sources, states, self._by_spark, lambda key: self._silence(key, now))


def is_same(before: Source, after: Source) -> bool:
    """Return whether a connector is equivalent to the earlier one."""
    if before is after:
        return True
    try:
        return type(before) is type(after) and bool(vars(before) == vars(after))
    except Exception:  # a frame, say, is not compared as a whole
        return False


def _with_topics(name: str, before: Any, seen: Iterable[Mapping[str, str]]) -> Any:
    """Remember the topic of each physical stream that Spark reads; refuse one that has rows of two."""
    topics: dict[str, str] = dict(before["topics"]) if before else {}
    for stream, topic in (item for found in seen for item in found.items()):
        if topics.setdefault(stream, topic) != topic:
            raise two_topics(name, stream, (topics[stream], topic))
    return {"topics": topics} if topics else before


def _qualified(label: str, stream: str) -> str:
    return f"{label}/{stream}" if label else stream


def _position_of(state: SourceState, label: str) -> Any:
    return state.position if label == _MAIN else state.attached.get(label, InputState()).position


def _move(times: dict[str, Micros], stream: str, time: Micros) -> None:
    times[stream] = max(time, times.get(stream, gate.BEGINNING))


def _is_over(state: SourceState, label: str) -> bool:
    return state.attached.get(label, InputState()).ended
