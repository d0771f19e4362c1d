"""Kafka out: the rows of an epoch and the entry in the ledger are one transaction.

The ledger of a topic is another topic, `<topic>.ledger`: one partition, compacted, an entry for each writer. A transactional id of the
topic and the writer makes the brokers shut out every earlier run, and decides the fate of its last transaction, before a run writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal

import polars as pl

from springtide.connectors import Advice, Entry, LedgerSink, Outbox, Owner, Publication, Target, failpoint, refusal
from springtide.query.errors import QueryError, SinkError, shown
from springtide.query.usage import usage
from springtide.sources.csv import check_separator
from springtide.topics.client import ANSWER, Client, asking, check_topic, describe, forbidden, offsets
from springtide.topics.encoding import FORMATS, Coding, encoded, unfit
from springtide.topics.outbox import LONGEST_NAMES, STEP, RecordFiles
from springtide.topics.protobuf import Message, imports
from springtide.topics.readers import check_avro
from springtide.topics.records import Range, Reader
from springtide.topics.registry import Refused, Registry, Unknown, registry_of

HEADER = "springtide"
"""The header of each record: query/sink/epoch/number."""
_LEDGER = ".ledger"
"""How the name of a topic with a ledger ends."""
_LONGEST = 300.0
"""Seconds that a transaction may take; the brokers give one up after that."""
_LONGEST_RECORD = 1_000_000
"""Bytes of a record that a producer takes, unless its setting message.max.bytes says otherwise."""
_ANY = -1
"""The partition of a record that has none of its own."""
_PARTITIONERS = {
    "murmur2": "murmur2_random",
    "crc32": "consistent_random",
    "fnv1a": "fnv1a_random",
    "random": "random",
}
"""How a key becomes a partition: our word → librdkafka's. Records without a key go anywhere."""
_TAIL = 100
"""Records at the end of each partition that are looked at where there is no ledger."""


_ADVICE = Advice(
    elsewhere="give this sink another topic, or a `writer` of its own if both may write to it",
    anew="to start over, use a new topic",
    back="copy the records up to epoch {epoch}, which is in their header `springtide`, to a new topic",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class KafkaSink(LedgerSink):
    """A topic that rows go to."""

    client: Client
    topic: str
    coding: Coding
    key: str | None
    partition: str | None
    """The column that says which partition a row goes to."""
    partitioner: str
    writer: str

    advice: Advice = field(default=_ADVICE, init=False, repr=False)

    @property
    def outbox(self) -> Outbox:
        """Tasks write Arrow files, and refuse rows that cannot be records."""
        longest = dict(self.client.config).get("message.max.bytes", "")
        return RecordFiles(
            coding=replace(self.coding, registry=None),
            key=self.key,
            partition=self.partition,
            longest=int(longest) if isinstance(longest, str) and longest.isdecimal() else _LONGEST_RECORD,
        )

    @property
    def ledger(self) -> str:
        """The topic with the ledger."""
        return self.topic + _LEDGER

    def describe(self) -> str:
        """Say which topic, and where."""
        return f"the kafka topic {self.topic} at {self.client.servers}"

    @property
    def place(self) -> Hashable:
        """Only one sink may be a topic's writer."""
        return "kafka", self.client.servers, self.topic, self.writer

    def check(self, schema: pl.Schema) -> str | None:
        """Say what cannot be written."""
        if self.partition is not None and not schema.get(self.partition, pl.Null()).is_integer():
            return f"partition={self.partition!r} must name a column of integers"
        return unfit(schema, self.coding, self.key, self.partition)

    def connect(self, owner: Owner) -> Target:
        """Connect to the brokers; the ledger's topic is made if there is none."""
        return KafkaTarget(self, owner)


class KafkaTarget(Target):
    """A topic and its ledger, as one run is connected to them. It writes nothing before `swap`."""

    def __init__(self, sink: KafkaSink, owner: Owner) -> None:
        """Look for both topics."""
        self._sink, self._owner, self._admin = sink, owner, sink.client.admin()
        self._producer: Any = None
        self._is_known = False
        self._known: Entry | None = None
        if (size := len(f"{owner.query}{owner.name}".encode())) > LONGEST_NAMES:
            problem = f"the names of the query and of this sink, which are in every record, have {size} bytes together"
            raise SinkError(owner.step, problem, f"make them shorter: {LONGEST_NAMES} bytes at most")
        describe(self._admin, [sink.topic])
        try:
            self._head = sink.coding.head(owner.schema)
        except (Refused, Unknown) as error:
            raise SinkError(
                owner.step,
                f"the schema registry does not accept the schema of these rows under the subject {sink.coding.subject}: {error}",
                "restore the columns that the rows had before, or give the sink another topic or another subject=…",
            ) from None
        self._id = self._find_ledger()

    def entry(self) -> Entry | None:
        """Look up the last entry. If a transaction is open, either shut out the run that it belongs to, or wait for its end."""
        first, stop, top = self._ends()
        found = self._last(first, stop)
        if stop < top:
            if self._producer is None and refusal(found, self._owner) is None:
                self._shut_others_out()
            found = self._settled()
        if found is None:
            self._check_unrecorded(first)
        return found

    def swap(self, before: Entry | None, after: Entry, publication: Publication | None) -> bool:
        """Write the rows and the entry in one transaction. Once others are shut out, only this run can have changed the ledger."""
        if not self._is_known:
            if self._producer is None and self.entry() != before:  # nobody is shut out in vain
                return False
            self._shut_others_out()
            self._known, self._is_known = self._settled(), True
        if self._known != before:
            return False
        self._is_known = False
        with self._writing(before) as written:
            self._producer.begin_transaction()
            if publication is not None:
                self._produce(publication)
            failpoint("kafka: the rows are sent")
            self._put(self._sink.ledger, json.dumps(astuple(after)).encode(), self._sink.writer.encode(), partition=0)
            failpoint("kafka: before the commit")
            self._producer.commit_transaction(_LONGEST)
            failpoint("kafka: after the commit")
            self._known, self._is_known = after, True
            written.append(True)
        return bool(written)

    def close(self) -> None:
        """Let the connections go; a transaction that is open is ended by whoever connects next, or by the brokers."""
        producer, self._producer, self._is_known = self._producer, None, False
        if producer is not None:
            producer.purge()

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _shut_others_out(self) -> None:
        self.close()
        self._producer = self._sink.client.producer(
            {
                "transactional.id": f"springtide/{self._sink.topic}/{self._sink.writer}",
                "transaction.timeout.ms": int(_LONGEST * 1000),
                "partitioner": _PARTITIONERS[self._sink.partitioner],
                "queue.buffering.max.messages": 1_000_000,
                "linger.ms": 20,
            }
        )
        with asking(f"beginning to write to {self._sink.topic}"):
            self._producer.init_transactions(3 * ANSWER)

    @contextmanager
    def _writing(self, before: Entry | None) -> Iterator[list[bool]]:
        """Say nothing where another run has shut this one out, and written since; other faults may pass."""
        from confluent_kafka import KafkaError, KafkaException

        fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        try:
            yield []
        except KafkaException as error:
            self.close()
            reason = error.args[0]
            if reason.code() in fenced and self._settled() != before:
                return
            if (hint := _remedies().get(reason.code())) is not None:
                problem = f"{self._sink.describe()} does not take the rows: {reason.str()}"
                raise SinkError(self._owner.step, problem, f"{hint}; the rows wait until then") from None
            raise ConnectionError(f"writing to {self._sink.topic}: {reason.str()}") from None

    def _produce(self, publication: Publication) -> None:
        prefix, number = f"{publication.query}/{publication.sink}/{publication.epoch}/", 0
        for rows in publication.frames():
            values, keys = encoded(rows, self._sink.coding, self._sink.key, self._head)
            for value, key, partition in zip(values, keys, self._partitions(rows), strict=True):
                header = (HEADER, f"{prefix}{number}".encode())
                self._put(self._sink.topic, value, key, partition=partition, headers=[header])
                number += 1

    def _partitions(self, rows: pl.DataFrame) -> Sequence[int]:
        """Return where each row goes; -1 where that is left to the partitioner."""
        if self._sink.partition is None:
            return [_ANY] * rows.height
        wanted = rows[self._sink.partition]
        topic = self._sink.topic
        if rows.height and not wanted.is_between(0, (count := describe(self._admin, [topic])[topic][1]) - 1).all():
            wrong = wanted.filter(~wanted.is_between(0, count - 1))[0]
            raise SinkError(
                self._owner.step,
                f"the column {self._sink.partition!r} sends a row to the partition {wrong} of {topic}, which has {count}: 0 to {count - 1}",
                f"give the topic more partitions: the rows wait until then; in later rows change {self._sink.partition!r}, or leave it null for any partition",
            )
        return wanted.fill_null(_ANY).to_list()

    def _put(self, topic: str, value: bytes | None, key: bytes | None, **more: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, **more)
            except BufferError:  # as much waits as may wait
                self._producer.poll(0.1)
            else:
                return

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _find_ledger(self) -> str:
        """Return the id of the ledger's topic; it is made if there is none."""
        name, until = self._sink.ledger, time.monotonic() + ANSWER
        with asking("listing topics"):
            if name not in self._admin.list_topics(timeout=ANSWER).topics:
                self._make(name)
        while True:  # a topic that was just made is not known everywhere
            try:
                id, _ = describe(self._admin, [name])[name]
                self._ends()
            except ConnectionError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
            else:
                return id

    def _make(self, topic: str) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "3600000"}
        try:
            self._admin.create_topics([NewTopic(topic, 1, config=settings)])[topic].result(ANSWER)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _ends(self) -> tuple[int, int, int]:
        """Return the ledger's first offset, the end of what is decided, and the end of what is there."""
        from confluent_kafka.admin import OffsetSpec

        place = (self._sink.ledger, 0)
        first = offsets(self._admin, [place], OffsetSpec.earliest(), committed=True)[place]
        top = offsets(self._admin, [place], OffsetSpec.latest(), committed=False)[place]
        stop = offsets(self._admin, [place], OffsetSpec.latest(), committed=True)[place]
        return first, stop, top

    def _settled(self) -> Entry | None:
        """Return the last entry once no transaction is open."""
        until = time.monotonic() + ANSWER
        while True:
            first, stop, top = self._ends()
            if stop >= top:
                return self._last(first, stop)
            if time.monotonic() > until:
                raise ConnectionError(
                    f"a transaction in {self._sink.ledger} is still open; the sink waits for it to end"
                )
            time.sleep(0.02)

    def _last(self, first: int, stop: int) -> Entry | None:
        found: Entry | None = None
        for record in self._read(self._sink.ledger, self._id, 0, first, stop):
            if record.key() == self._sink.writer.encode():
                found = Entry(*json.loads(record.value()))
        return found

    def _read(self, topic: str, id: str, partition: int, first: int, stop: int) -> list[Any]:
        if first >= stop:
            return []
        part = Range(topic, id, partition, first, stop)
        reader = Reader(self._sink.client, "read_committed", part)
        try:
            return [record for batch in reader.read(part) for record in batch]
        finally:
            reader.close()

    def _check_unrecorded(self, first: int) -> None:
        """Refuse a topic without an entry in its ledger if there was one: nobody could tell which epochs are there."""
        owner = self._owner
        if first > 0 or (owner.epoch >= 0 and self._has_rows(f"{owner.query}/{owner.name}/".encode())):
            raise SinkError(
                owner.step,
                f"{self._sink.describe()} has rows of this sink, but its ledger {self._sink.ledger} has lost the entry that says up to which epoch",
                "give this sink another topic",
            )

    def _has_rows(self, prefix: bytes) -> bool:
        from confluent_kafka.admin import OffsetSpec

        topic = self._sink.topic
        id, count = describe(self._admin, [topic])[topic]
        places = [(topic, n) for n in range(count)]
        firsts = offsets(self._admin, places, OffsetSpec.earliest(), committed=True)
        stops = offsets(self._admin, places, OffsetSpec.latest(), committed=True)
        for place, stop in stops.items():
            for record in self._read(topic, id, place[1], max(firsts[place], stop - _TAIL), stop):
                if any(name == HEADER and (value or b"").startswith(prefix) for name, value in record.headers() or ()):
                    return True
        return False


def _remedies() -> Mapping[int, str]:
    """Return what to do about errors of brokers that come again however often a record is sent."""
    from confluent_kafka import KafkaError

    larger = "raise max.message.bytes of the topic, and config={'message.max.bytes': …} of this sink"
    rights = "give the user of this sink the right to write to the topic, to its ledger and with its transactional id"
    return dict.fromkeys(forbidden(), rights) | {
        KafkaError.MSG_SIZE_TOO_LARGE: larger,
        KafkaError.RECORD_LIST_TOO_LARGE: larger,
        KafkaError.INVALID_RECORD: "change the topic's settings: a compacted one takes no records without a key, and some limit the times of records",
        KafkaError.INVALID_TIMESTAMP: "change the topic's settings for the times of records",
        KafkaError.POLICY_VIOLATION: "change the policy of the brokers",
    }


@usage("st.kafka_sink('localhost:9092', 'calls')")
def kafka_sink(
    servers: str | Sequence[str],
    topic: str,
    *,
    value: Literal["json", "csv", "avro", "protobuf", "text", "bytes"] = "json",
    separator: str = ",",
    key: str | None = None,
    partition: str | None = None,
    partitioner: Literal["murmur2", "crc32", "fnv1a", "random"] = "murmur2",
    registry: Registry | str | None = None,
    subject: str | None = None,
    message: Any = None,
    writer: str = "",
    config: Mapping[str, Any] | None = None,
) -> KafkaSink:
    """Write rows to a topic, each exactly once for whoever reads with `isolation.level=read_committed`.

    Values are JSON objects or CSV lines with all columns, or, as "text" or "bytes", the column `value`. `key` names a column of text or bytes that
    becomes the key. Each record has the header `springtide`: query/sink/epoch/number.

    The key decides the partition as in Java's clients ("murmur2"), in those on top of librdkafka ("crc32"), or in Sarama ("fnv1a"); or nothing does
    ("random"). With `partition`, a column of integers says where each row goes, and null leaves it to the `partitioner`.

    Avro values are records with all columns, Protobuf values are of the class `message`, with a field for each column. Their schema is
    registered in the `registry` (an address, or `st.schema_registry`) under the `subject`, which is `<topic>-value` by default;
    without a registry, the values are bare.

    A topic has one writer, which a ledger in the topic `<topic>.ledger` remembers. If several sinks write to one topic (one of
    them rejected rows, say), give each a `writer` name of its own.

    `config` has settings of librdkafka, such as those for TLS and SASL; passwords can be a `springtide.connectors.Secret`.

    >>> st.kafka_sink("localhost:9092", "heavy", key="src").describe()
    'the kafka topic heavy at localhost:9092'
    """
    client = Client.of(STEP, servers, config)
    check_topic(STEP, topic, room=len(_LEDGER))
    for option, given, choices in (("value", value, FORMATS), ("partitioner", partitioner, tuple(_PARTITIONERS))):
        if given not in choices:
            raise QueryError(STEP, f"{option}={shown(given)} is unknown", f"use one of {', '.join(choices)}")
    check_separator(STEP, separator)
    coding = _coding(value, registry_of(registry), subject or f"{topic}-value", message, separator)
    return KafkaSink(
        client=client,
        topic=topic,
        coding=coding,
        key=key,
        partition=partition,
        partitioner=partitioner,
        writer=writer,
    )


def _coding(value: str, registry: Registry | None, subject: str, message: Any, separator: str) -> Coding:
    if value == "avro":
        check_avro(STEP)
    if registry is not None and value not in ("avro", "protobuf"):
        raise QueryError(STEP, f"registry= is for Avro and Protobuf, not for {value!r}", "leave it out")
    if (message is not None) != (value == "protobuf"):
        raise QueryError(
            STEP,
            f"value={value!r} and message={shown(message)} do not go together",
            "give message= with value='protobuf', and only then",
        )
    kind = Message.of(STEP, message) if message is not None else None
    if kind is not None and registry is not None and (other := imports(kind)):
        raise QueryError(
            STEP,
            f"the file of {kind.name} imports {other[0]}, which would have to be registered too",
            "put the messages into one file, or write bare messages: leave registry= out",
        )
    return Coding(value, registry, subject, kind, separator)
