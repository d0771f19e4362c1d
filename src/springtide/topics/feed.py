"""The driver's part of reading a topic: which records there are, and which of them come next. No record is read here."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from springtide.connectors import Feed, Slice, Take
from springtide.query.errors import SpringtideError
from springtide.query.types import END_OF_TIME
from springtide.topics.client import asking, describe, offsets
from springtide.topics.ranges import Partition, cut, new_topics, share
from springtide.topics.records import Range, lost, made_anew, stream_name

if TYPE_CHECKING:
    from springtide.topics.source import Kafka

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True)
class _Found:
    """What the brokers say now."""

    ids: Mapping[str, str]
    first: Mapping[Place, int]
    stop: Mapping[Place, int]


class KafkaFeed(Feed):
    """Takes ranges of offsets."""

    def __init__(self, source: Kafka) -> None:
        """Connect."""
        self._source, self._admin = source, source.client.admin()
        self._matching: tuple[float, list[str]] | None = None

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take what has arrived, in proportion to what waits in each partition."""
        known = dict(position["topics"]) if position else {}
        try:
            found = self._look(known)
        except ConnectionError:  # what the connection remembers of partitions and their leaders may be out of date
            self._admin = self._source.client.admin()
            found = self._look(known)
        if position and (topic := new_topics(position["topics"], found.ids)) is not None:
            raise made_anew(topic)
        if position is None:
            position = self._begin(found)
        partitions, notes = self._partitions(position, found)
        takes = share([p.waiting for p in partitions], limit)
        slices: list[Slice] = []
        after = {stream_name(p.topic, p.number): p.next + n for p, n in zip(partitions, takes, strict=True)}
        for p, n in zip(partitions, takes, strict=True):
            for part in cut(Range(p.topic, p.id, p.number, p.next, p.next + n), apart=ts is None):
                data = [part.topic, part.id, part.partition, part.start, part.stop]
                greatest = 0 if ts is None else None  # a source without time can be read in any order
                slices.append(Slice(part.stream, part.start, part.stop - part.start, data, greatest, exact=False))
        left = sum(p.waiting for p in partitions) - sum(takes)
        ends = self._ends(position)
        done = [s for s, at in after.items() if ends is not None and at >= ends.get(s, 0)]
        ended = ends is not None and len(done) == len(after)
        return Take(
            tuple(slices),
            {"topics": dict(found.ids), "next": after} | ({"ends": position["ends"]} if "ends" in position else {}),
            times=dict.fromkeys(done, END_OF_TIME),
            streams=tuple(after),
            ended=ended,
            backlog=left,
            notes=tuple(notes),
        )

    # ── what the brokers say ──────────────────────────────────────────────────────────────────────────────────────

    def _look(self, known: dict[str, str]) -> _Found:
        from confluent_kafka.admin import OffsetSpec

        names = sorted({*self._names(), *known})
        topics = describe(self._admin, names) if names else {}
        places = [(name, number) for name, (_, count) in topics.items() for number in range(count)]
        committed = self._source.only_committed
        first = offsets(self._admin, places, OffsetSpec.earliest(), committed=committed)
        stop = offsets(self._admin, places, OffsetSpec.latest(), committed=committed)
        return _Found({name: id for name, (id, _) in topics.items()}, first, stop)

    def _names(self) -> list[str]:
        """Return the topics; those that match a pattern are looked up now and then."""
        source = self._source
        if source.pattern is None:
            return list(source.topics)
        now = time.monotonic()
        if self._matching is None or now - self._matching[0] >= source.discover:
            with asking("listing topics"):
                listed = self._admin.list_topics(timeout=10).topics
            self._matching = now, sorted(name for name in listed if re.fullmatch(source.pattern, name))
        return self._matching[1]

    # ── where to begin and to end ─────────────────────────────────────────────────────────────────────────────────

    def _begin(self, found: _Found) -> dict[str, Any]:
        start = self._starts(found)
        position: dict[str, Any] = {
            "topics": dict(found.ids),
            "next": {stream_name(*place): at for place, at in start.items()},
        }
        end = self._source.end
        if end is not None:
            given = self._source.given(end, found.stop) if isinstance(end, Mapping) else found.stop
            position["ends"] = {stream_name(*p): max(at, start[p]) for p, at in given.items()}
        return position

    def _starts(self, found: _Found) -> Mapping[Place, int]:
        from confluent_kafka.admin import OffsetSpec

        start = self._source.start
        if start == "earliest":
            return found.first
        if start == "latest":
            return found.stop
        if isinstance(start, datetime):
            spec = OffsetSpec.for_timestamp(int(start.timestamp() * 1000))
            at = offsets(self._admin, list(found.first), spec, committed=self._source.only_committed)
            return {place: offset if offset >= 0 else found.stop[place] for place, offset in at.items()}
        assert isinstance(start, Mapping)
        return self._source.given(start, found.first)

    def _ends(self, position: Mapping[str, Any]) -> Mapping[str, int] | None:
        """Return where the streams end, if they do."""
        return self._source.stops if self._source.stops is not None else position.get("ends")

    def _partitions(self, position: Mapping[str, Any], found: _Found) -> tuple[list[Partition], list[str]]:
        """Return how far each partition was read; a new one is read from its first record."""
        ends = self._ends(position)
        partitions, notes = [], []
        for place in sorted(found.first):
            stream, first, stop = stream_name(*place), found.first[place], found.stop[place]
            if ends is not None:
                if stream not in ends:  # it was not there when the end was decided
                    continue
                stop = min(stop, ends[stream])
            # a partition that has come to a known topic came after the last look: all its records are still to be read
            at = position["next"].get(stream, 0 if place[0] in position["topics"] else first)
            if at < min(first, ends[stream] if ends is not None else first):
                if self._source.lost == "fail":
                    raise lost(stream, at, first)
                notes.append(
                    f"the records at offsets {at} to {first - 1} of {stream} were deleted before they were read"
                )
                at = first if ends is None else min(first, ends[stream])
            elif at > found.stop[place]:
                notes.append(
                    f"{stream} ends at offset {found.stop[place]}, but was read up to {at}: brokers have lost records"
                )
            partitions.append(Partition(place[0], found.ids[place[0]], place[1], first, stop, at))
        return partitions, notes

    def close(self) -> None:
        """Close the connection."""
        self._admin = None


def check_missing(missing: list[Place], what: str) -> None:
    """Refuse offsets that leave partitions out."""
    if missing:
        raise SpringtideError(
            f"{what} has no offset for the partition {missing[0][1]} of the topic {missing[0][0]}; give one for each partition"
        )
