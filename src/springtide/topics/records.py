"""Records of a range of offsets, read in a task. A consumer is kept for the next range, which it has usually fetched already."""

from __future__ import annotations

import gc
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from springtide.query.errors import SpringtideError
from springtide.topics.client import Client, asking, describe

_SILENCE = 15.0
"""Seconds without any record after which the brokers count as unavailable."""
_BATCH = 20_000
"""Records that are handed on at a time: few enough that the processor's caches hold them."""
_WAIT = 0.05
"""Seconds to wait until a batch is full. The end of a range may have no records, so that none ever is."""
_KEPT = 16
"""Consumers that a process keeps."""


@dataclass(frozen=True)
class Range:
    """Offsets of one partition: from `start`, before `stop`."""

    topic: str
    id: str
    """Distinguishes the topic from one of the same name that was created later."""
    partition: int
    start: int
    stop: int

    @property
    def stream(self) -> str:
        """The name of the physical stream."""
        return stream_name(self.topic, self.partition)


def stream_name(topic: str, partition: int) -> str:
    """Return the name of a partition as a physical stream; a topic's name has no colon."""
    return f"{topic}:{partition}"


class Gone(Exception):
    """Raised when the records from an offset on are gone."""

    def __init__(self, offset: int) -> None:
        """Keep the offset."""
        super().__init__(f"the records from offset {offset} on are gone")
        self.offset = offset


class Reader:
    """A consumer at a place in one partition."""

    def __init__(self, client: Client, isolation: str, part: Range) -> None:
        from confluent_kafka import TopicPartition

        self._consumer = client.consumer(
            {
                "isolation.level": isolation,
                "fetch.message.max.bytes": 8 << 20,
                "queued.max.messages.kbytes": 32 << 10,
                "fetch.queue.backoff.ms": 50,  # a second, else, once enough is fetched: longer than that lasts
                "fetch.wait.max.ms": 100,
            }
        )
        self._admin = client.admin()
        self._ahead: list[Any] = []
        """Records after the last range, which were fetched with it."""
        self._seen = self.next = part.start
        """All offsets before this one were seen, with or without a record; it is where the last range ended."""
        self._consumer.assign([TopicPartition(part.topic, part.partition, part.start)])

    def read(self, part: Range) -> Iterator[list[Any]]:
        """Give the records of a range, a batch at a time; there may be none at some of its offsets."""
        found = [m for m in self._ahead if m.offset() < part.stop]
        self._ahead = self._ahead[len(found) :]
        heard = time.monotonic()
        while self._seen < part.stop:
            with asking(f"reading {part.stream}"), _no_garbage_collection():
                batch = self._consumer.consume(min(_BATCH, part.stop - self._seen), _WAIT)
            if batch:
                heard = time.monotonic()
                self._sort(batch, found, part)
            elif time.monotonic() - heard > _SILENCE:
                raise ConnectionError(f"reading {part.stream} at offset {self._seen}: no record in {_SILENCE:g} s")
            if len(found) >= _BATCH:
                yield found
                found = []
                heard = time.monotonic()
        self.next = part.stop
        yield found

    def check(self, part: Range) -> None:
        """Refuse what was read if the topic is not the expected one: checked after a range was read, it holds for all of that range."""
        found, _ = describe(self._admin, [part.topic])[part.topic]
        if found != part.id:
            raise made_anew(part.topic)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _sort(self, batch: list[Any], found: list[Any], part: Range) -> None:
        """Separate the records of the range from later ones."""
        from confluent_kafka import KafkaError

        last = batch[-1]
        if last.error() is None and last.offset() < part.stop and not any(map(_fault, batch)):
            found.extend(batch)
            self._seen = last.offset() + 1
            return
        for message in batch:
            error = message.error()
            if error is None:
                (found if message.offset() < part.stop else self._ahead).append(message)
                self._seen = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._seen = max(self._seen, message.offset())
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise Gone(self._seen)
            else:
                raise ConnectionError(f"reading {part.stream} at offset {self._seen}: {error.str()}")


def _fault(message: Any) -> bool:
    return message.error() is not None


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Put Python's collector off while many objects are made at once: it would look at them again and again, which takes longer than to make them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_readers: OrderedDict[tuple[Client, str, str, str, int], Reader] = OrderedDict()


def read(client: Client, isolation: str, part: Range) -> Iterator[list[Any]]:
    """Give the records of a range, a batch at a time. They are those of the topic that was meant if this comes to its end."""
    key = (client, isolation, part.topic, part.id, part.partition)
    reader = _readers.pop(key, None)
    if reader is not None and reader.next != part.start:
        reader.close()
        reader = None
    if reader is None:
        reader = Reader(client, isolation, part)
    try:
        try:
            yield from reader.read(part)
        except Gone:  # or it is another topic, which has fewer records
            reader.check(part)
            raise
        reader.check(part)
    except BaseException:
        reader.close()
        raise
    _readers[key] = reader
    while len(_readers) > _KEPT:
        _readers.popitem(last=False)[1].close()


def forget() -> None:
    """Close all connections of this process."""
    while _readers:
        _readers.popitem()[1].close()


def made_anew(topic: str) -> SpringtideError:
    """Return the error for a topic that is not the one that was read before."""
    return SpringtideError(
        f"the topic {topic} was deleted and created again since it was first read: its offsets refer to other records now, and what was not "
        "read of the old one is gone; read the new one with a new checkpoint"
    )


def lost(stream: str, first: int, stop: int | None) -> SpringtideError:
    """Return the error for records that were deleted before they were read."""
    which = f"the records from offset {first} on" if stop is None else f"the records at offsets {first} to {stop - 1}"
    return SpringtideError(
        f"{which} of {stream} were deleted before they were read: the topic's retention is too short, or the query stood still for "
        "too long; to continue without them: st.kafka(…, lost='skip')"
    )
