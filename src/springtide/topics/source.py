"""Kafka in: the partitions of a topic are physical streams, offsets are positions, and tasks read the records themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import polars as pl

from springtide.connectors import POSITION, Feed, Owner, Read, Slice, Source
from springtide.query.errors import QueryError, SpringtideError
from springtide.query.errors import shown as shown_value
from springtide.query.types import TIME, micros, schema_from
from springtide.query.usage import usage
from springtide.sources.csv import check_separator
from springtide.sources.text_columns import check_types
from springtide.topics import records, values
from springtide.topics.avro import AvroReader
from springtide.topics.client import Client, check_topic
from springtide.topics.feed import KafkaFeed, Place, check_missing
from springtide.topics.protobuf import ProtobufReader
from springtide.topics.readers import reader_of
from springtide.topics.registry import Registry, registry_of
from springtide.values.row_checks import row_text

_STEP = "(kafka)"
FORMATS = ("json", "csv", "avro", "protobuf", "text", "bytes")
_LONGEST = (2**63 - 1) // 1000
"""Milliseconds that are still a number of microseconds."""
_HEADERS = pl.List(pl.Struct({"name": pl.String(), "value": pl.Binary()}))

Offsets = Mapping[Any, int]


@dataclass(frozen=True, eq=False, kw_only=True)
class Kafka(Source):
    """Topics of a Kafka cluster."""

    client: Client
    topics: tuple[str, ...]
    pattern: str | None
    format: str
    columns: pl.Schema
    """Those that the values have."""
    extra: Mapping[str, str]
    """Part of a record, such as "key" → the column that it goes to."""
    key: str = "text"
    separator: str = ","
    reader: AvroReader | ProtobufReader | None = None
    """What reads values that have schemas of their own."""
    start: str | datetime | Offsets = "earliest"
    end: str | Offsets | None = None
    lost: str = "fail"
    only_committed: bool = True
    discover: float = 30.0
    stops: Mapping[str, int] | None = None
    """Physical stream → the offset before which it ends, if it is read again."""
    replayable: bool = field(default=False, init=False)
    """Retention and compaction may take records away once an epoch is committed."""

    @property
    def shareable(self) -> bool:
        """Whether replicas can read it: yes, as long as retention leaves them the time."""
        return True

    def schema(self) -> pl.Schema:
        """Return the columns of the values, then those of the records."""
        types: dict[str, pl.DataType] = {
            "key": pl.String() if self.key == "text" else pl.Binary(),
            "headers": _HEADERS,
            "topic": pl.String(),
            "partition": pl.Int32(),
            "offset": pl.Int64(),
            "time": TIME,
        }
        return pl.Schema({**self.columns, **{column: types[part] for part, column in self.extra.items()}})

    def describe(self) -> str:
        """Say which topics, and where."""
        what = f"topics {self.pattern}" if self.pattern else f"topic {', '.join(self.topics)}"
        bounds = "" if self.end is None else ", as far as it goes now" if self.end == "now" else ", up to given offsets"
        return f"kafka {what} at {self.client.servers}{bounds}"

    def upto(self, position: Any) -> Kafka | None:
        """Read the same offsets again; where they began is not known of topics that were read from what was then their end."""
        return None if self.start == "latest" else replace(self, stops=dict(position["next"]))

    def open(self, owner: Owner) -> Feed:
        """Connect to the brokers."""
        return KafkaFeed(self)

    def given(self, offsets: Offsets, known: Mapping[Place, int]) -> dict[Place, int]:
        """Return the offsets that a user gave, for each partition that there is."""
        wanted = {k if isinstance(k, tuple) else (self.topics[0], k): v for k, v in offsets.items()}
        check_missing([p for p in sorted(known) if p not in wanted], "what was given as start or end")
        if unknown := sorted(wanted.keys() - known.keys()):
            raise SpringtideError(
                f"the topic {unknown[0][0]} has no partition {unknown[0][1]}; remove its offset from start or end"
            )
        return wanted

    def read(self, part: Slice) -> Read:
        """Read a range of offsets, and what is in the records."""
        wanted = records.Range(*part.data)
        isolation = "read_committed" if self.only_committed else "read_uncommitted"
        try:
            reads = [self._read(found) for found in records.read(self.client, isolation, wanted)]
        except records.Gone as gone:
            if self.lost == "skip":  # the next look finds what is left
                raise ConnectionError(str(gone)) from None
            raise records.lost(wanted.stream, gone.offset, None) from None
        rows = pl.concat([rows for rows, _ in reads], rechunk=True)
        return Read(rows.lazy(), tuple(row for _, rejected in reads for row in rejected))

    def _read(self, found: Sequence[Any]) -> tuple[pl.DataFrame, list[Mapping[str, Any]]]:
        """Return what is in some records: rows, and those that do not fit."""
        parsed = self._parse([m.value() for m in found])
        places = _offsets(found)
        more, wrong = self._of_records(found, places)
        faults = wrong | parsed.faults
        rows, numbers = parsed.rows, parsed.numbers
        if wrong:
            keep = ~numbers.is_in(list(wrong))
            rows, numbers = rows.filter(keep), numbers.filter(keep)
        everything = numbers.len() == len(found)
        picked = [c if everything else c.gather(numbers) for c in (*more, places)]
        rejected: list[Mapping[str, Any]] = [
            {
                "position": places[i],
                "reason": why,
                "row": row_text(values.shown(found[i].value(), found[i].key())),
            }
            for i, why in sorted(faults.items())
        ]
        return rows.with_columns(picked), rejected

    @cached_property
    def _parse(self) -> Callable[[values.Bytes], values.Parsed]:
        return self.reader.read if self.reader else values.parser(self.format, self.columns, self.separator)

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is made of the rest behind."""
        return {k: v for k, v in vars(self).items() if k != "_parse"}

    def _of_records(self, found: Sequence[Any], places: pl.Series) -> tuple[list[pl.Series], values.Faults]:
        """Return the columns of the records themselves, and which records have a key that does not fit."""
        made: list[pl.Series] = []
        wrong: values.Faults = {}
        for part, name in self.extra.items():
            if part == "key":
                keys = [m.key() for m in found]
                column, faults = values.text_column(keys) if self.key == "text" else (values.series(keys), {})
                wrong |= {i: f"the key cannot be read: {why}" for i, why in faults.items()}
            elif part == "headers":
                headers = [_headers(m) for m in found]
                wrong |= {i: "the name of a header is not UTF-8" for i, h in enumerate(headers) if h is None}
                column = pl.Series(headers, dtype=_HEADERS)
            elif part == "offset":
                column = places
            elif part == "time":
                times = pl.Series([m.timestamp()[1] for m in found], dtype=pl.Int64)
                held = times.is_between(-_LONGEST, _LONGEST)
                if not held.all():
                    wrong |= dict.fromkeys(
                        (~held).arg_true(), "the time of the record does not fit 64 bits of microseconds"
                    )
                    times = times.set(~held, None)
                column = (times * 1000).cast(TIME)
            elif part == "partition":
                column = (
                    pl.Series([m.partition() for m in found[:1]], dtype=pl.Int32).new_from_index(0, len(found))
                    if found
                    else pl.Series([], dtype=pl.Int32)
                )
            else:
                column = pl.Series([m.topic() for m in found], dtype=pl.String)
            made.append(column.alias(name))
        return made, wrong


def _headers(message: Any) -> list[dict[str, Any]] | None:
    """Return the headers of a record; None if the library cannot read their names."""
    try:
        return [{"name": name, "value": value} for name, value in message.headers() or ()]
    except (UnicodeDecodeError, SystemError):
        return None


def _offsets(found: Sequence[Any]) -> pl.Series:
    if not found:
        return pl.Series(POSITION, [], dtype=pl.Int64)
    first, last = found[0].offset(), found[-1].offset()
    if last - first + 1 == len(found):
        return pl.int_range(first, last + 1, eager=True).alias(POSITION)
    return pl.Series(POSITION, [m.offset() for m in found], dtype=pl.Int64)


@usage("st.kafka('localhost:9092', 'calls', schema={'src': pl.String, 'ts': st.TIME})")
def kafka(
    servers: str | Sequence[str],
    topic: str | Sequence[str] | None = None,
    *,
    pattern: str | None = None,
    value: Literal["json", "csv", "avro", "protobuf", "text", "bytes"] = "json",
    schema: Mapping[str, Any] | str | None = None,
    registry: Registry | str | None = None,
    message: Any = None,
    separator: str = ",",
    key: Literal["text", "bytes"] = "text",
    key_as: str | None = None,
    headers_as: str | None = None,
    topic_as: str | None = None,
    partition_as: str | None = None,
    offset_as: str | None = None,
    time_as: str | None = None,
    start: Literal["earliest", "latest"] | datetime | Offsets = "earliest",
    end: Literal["now"] | Offsets | None = None,
    lost: Literal["fail", "skip"] = "fail",
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    discover: str = "30s",
    config: Mapping[str, Any] | None = None,
) -> Kafka:
    """Read the records of a topic, of several topics, or of all whose whole names match a pattern.

    Values are JSON objects or CSV lines with the columns of `schema`, or, as "text" or "bytes", the one column `value`. Parts of the record
    become columns if they are given a name: `time_as="ts"` is when it was made or, if the topic says so, when the broker received it. What
    does not fit is at the stream's `rejected`: its `stream` is topic:partition, its `position` the offset, and `row` has key and value as they are.

    Avro and Protobuf values begin with the ids of their schemas, which are in the `registry` (an address, or `st.schema_registry`); without
    one, they are bare. Of each record the columns of `schema` are taken, whichever schema it was written with: what it does not have is
    null. For Avro, `schema` can also be an Avro schema, with defaults. For Protobuf, `message` is the class of the messages; `schema`
    may then be left out, and so may `message` if the registry knows how to give descriptors.

    A query begins with the first records, the next ones ("latest"), those of a time, or given offsets ({partition: offset}, or
    {(topic, partition): offset}); later starts continue where the last one ended. With `end="now"`, or offsets, the input ends. Partitions that
    are added are read from their beginning, and so are new topics that match the `pattern`: they are looked for every `discover`.
    Records that were deleted before they were read end the run, or, with `lost="skip"`, are skipped and reported.

    `config` has settings of librdkafka, such as those for TLS and SASL; passwords can be a `springtide.connectors.Secret`.

    >>> st.kafka("localhost:9092", "calls", schema={"src": pl.String, "ts": st.TIME}).describe()
    'kafka topic calls at localhost:9092'
    """
    client = Client.of(_STEP, servers, config)
    topics = (topic,) if isinstance(topic, str) else tuple(topic or ())
    if bool(topics) == (pattern is not None):
        raise QueryError(
            _STEP,
            f"topic={shown_value(topic)}, pattern={shown_value(pattern)}: exactly one of the two must be given",
            "name the topic, or give a pattern",
        )
    for name in topics:
        check_topic(_STEP, name)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise QueryError(
                _STEP, f"pattern={pattern!r} cannot be read: {error}", "give a regular expression"
            ) from None
    for option, given, choices in (
        ("value", value, FORMATS),
        ("key", key, ("text", "bytes")),
        ("lost", lost, ("fail", "skip")),
        ("isolation", isolation, ("read_committed", "read_uncommitted")),
    ):
        if given not in choices:
            raise QueryError(_STEP, f"{option}={shown_value(given)} is unknown", f"use one of {', '.join(choices)}")
    check_separator(_STEP, separator)
    extra = {
        "key": key_as,
        "headers": headers_as,
        "topic": topic_as,
        "partition": partition_as,
        "offset": offset_as,
        "time": time_as,
    }
    named = {part: name for part, name in extra.items() if name is not None}
    reader = reader_of(_STEP, value, schema, registry_of(registry), message)
    columns = reader.columns if reader is not None else _columns(value, schema)
    if twice := [n for n in named.values() if n in columns or list(named.values()).count(n) > 1]:
        raise QueryError(_STEP, f"there are two columns {twice[0]!r}", "give each a name of its own")
    return Kafka(
        client=client,
        topics=topics,
        pattern=pattern,
        format=value,
        columns=columns,
        extra=named,
        key=key,
        separator=separator,
        reader=reader,
        start=_start(start, topics),
        end=_offsets_or(("now", None), "end", end, topics),
        lost=lost,
        only_committed=isolation == "read_committed",
        discover=micros(discover) / 1e6 if discover != "0s" else 0.0,
    )


def _columns(value: str, schema: Mapping[str, Any] | str | None) -> pl.Schema:
    if value in ("text", "bytes"):
        if schema is not None:
            raise QueryError(_STEP, f"value={value!r} takes no schema", "leave it out: the column is `value`")
        return pl.Schema({"value": pl.String() if value == "text" else pl.Binary()})
    if schema is None:
        raise QueryError(_STEP, f"value={value!r} needs a schema", "write schema={'src': pl.String, …}")
    columns = schema_from(_STEP, "schema", schema)
    check_types(_STEP, columns, nested=value == "json")
    return columns


def _start(start: Any, topics: Sequence[str]) -> Any:
    if isinstance(start, datetime):
        return start if start.tzinfo else start.replace(tzinfo=UTC)
    return _offsets_or(("earliest", "latest"), "start", start, topics)


def _offsets_or(words: tuple[Any, ...], option: str, given: Any, topics: Sequence[str]) -> Any:
    """Return what was given if it is one of the words, or offsets by partition."""
    if isinstance(given, Mapping):
        whole = all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in given.values())
        named = all(isinstance(k, tuple) or (type(k) is int and len(topics) == 1) for k in given)
        if given and whole and named:
            return dict(given)
    elif given in words:
        return given
    allowed = ", ".join(repr(w) for w in words if w is not None)
    raise QueryError(
        _STEP,
        f"{option}={shown_value(given)} cannot be used",
        f"give {allowed}, or offsets: {{partition: offset}} for a single topic, else {{(topic, partition): offset}}",
    )
