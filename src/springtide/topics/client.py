"""Connections to brokers: how they are set up, and what their errors mean."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from springtide.connectors import Secret
from springtide.query.errors import QueryError, SpringtideError, shown

_SILENT = logging.getLogger("springtide.topics")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
"""The client library's log is discarded: what matters comes as an error, and addresses may contain secrets."""

_PRIVATE = ("password", "passphrase", "secret", "key.pem", "oauthbearer.config", "jaas.config", "token", "kinit.cmd")
"""Settings whose names contain one of these have a secret value, or one with a secret in it."""
_OURS = ("bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset", "enable.partition.eof")
_LONGEST_TOPIC = 249
ANSWER = 10.0
"""Seconds within which a broker must answer; after that it counts as unavailable."""


@dataclass(frozen=True)
class Client:
    """Where the brokers are, and how to connect to them."""

    servers: str
    config: tuple[tuple[str, Secret | str], ...] = ()

    @staticmethod
    def of(step: str, servers: str | Sequence[str], config: Mapping[str, Any] | None) -> Client:
        """Return a client for what a user wrote; refuse what is wrong."""
        if find_spec("confluent_kafka") is None:
            raise QueryError(step, "the package confluent-kafka is not installed", "pip install 'springtide[kafka]'")
        names = [servers] if isinstance(servers, str) else servers
        if not isinstance(names, Sequence) or not names or not all(isinstance(n, str) and n for n in names):
            raise QueryError(step, f"{shown(servers)} names no brokers", "write for example 'localhost:9092'")
        made: list[tuple[str, Secret | str]] = []
        for key, value in sorted((config or {}).items()):
            if key in _OURS:
                raise QueryError(step, f"config={{{key!r}: …}} is set by Springtide itself", "leave it out")
            private = any(word in key for word in _PRIVATE)
            made.append((key, value if isinstance(value, Secret) else Secret(str(value)) if private else str(value)))
        return Client(",".join(names), tuple(made))

    def settings(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a connection with the secrets revealed: for the client library only."""
        own = {k: v.reveal() if isinstance(v, Secret) else v for k, v in self.config}
        return {"bootstrap.servers": self.servers, "log_level": 2, "logger": _SILENT} | own | dict(more)

    def admin(self) -> Any:
        """Return a connection that asks about topics."""
        from confluent_kafka.admin import AdminClient

        with _setting_up():
            return AdminClient(self.settings({"error_cb": _ignore}))

    def consumer(self, more: Mapping[str, Any]) -> Any:
        """Return a connection that reads records, and commits nothing."""
        from confluent_kafka import Consumer

        ours = {
            "group.id": "springtide",  # the library requires one; nothing is ever committed to it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "error_cb": _ignore,
        }
        with _setting_up():
            return Consumer(self.settings(ours | dict(more)))

    def producer(self, more: Mapping[str, Any]) -> Any:
        """Return a connection that writes records."""
        from confluent_kafka import Producer

        with _setting_up():
            return Producer(self.settings({"error_cb": _ignore} | dict(more)))


def _ignore(_: object) -> None:
    """Ignore errors in the background: the library tries again by itself, and calls raise what matters."""


@contextmanager
def _setting_up() -> Iterator[None]:
    """Refuse settings that the library does not take: to try again would not help."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        yield
    except KafkaException as error:
        reason = error.args[0]
        if isinstance(reason, KafkaError) and reason.code() in (KafkaError._INVALID_ARG, KafkaError._NOT_IMPLEMENTED):
            raise SpringtideError(
                f"config= has a setting that Kafka's client does not accept: {reason.str()}"
            ) from None
        raise ConnectionError(f"Kafka's client cannot be set up: {reason}") from None


def check_topic(step: str, name: Any, *, room: int = 0) -> None:
    """Refuse what cannot be the name of a topic, or leaves no `room` for a longer one.

    >>> check_topic("(kafka)", "Århus")
    Traceback (most recent call last):
    springtide.query.errors.QueryError: step (kafka): 'Århus' cannot be the name of a topic; use ASCII letters, digits, . _ and -, at most 249
    """
    if not isinstance(name, str) or not name:
        raise QueryError(step, f"topic={shown(name)} is not a name", "give the name of a topic")
    longest = _LONGEST_TOPIC - room
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or name in (".", "..") or len(name) > longest:
        hint = f"use ASCII letters, digits, . _ and -, at most {longest}"
        raise QueryError(step, f"{shown(name)} cannot be the name of a topic", hint)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn errors of the client library into temporary faults that say what was attempted, except for rights that the user does not have."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        reason = error.args[0] if error.args else error
        text = reason.str() if hasattr(reason, "str") else str(reason)
        if hasattr(reason, "code") and reason.code() in forbidden():
            raise SpringtideError(f"{what}: {text}; give the user of this connection the right to do it") from None
        raise ConnectionError(f"{what}: {text}") from None
    except TimeoutError:
        raise ConnectionError(f"{what}: no answer in {ANSWER:g} s") from None


def forbidden() -> tuple[int, ...]:
    """Return the errors that say that a user lacks a right."""
    from confluent_kafka import KafkaError

    return (
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def describe(admin: Any, topics: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return each topic's id and its number of partitions."""
    from confluent_kafka import TopicCollection

    with asking(f"looking for the topics {', '.join(topics)}"):
        answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER)
        found = {name: answer.result(ANSWER) for name, answer in answers.items()}
    return {name: (str(topic.topic_id), len(topic.partitions)) for name, topic in found.items()}


def offsets(admin: Any, places: Sequence[tuple[str, int]], spec: Any, *, committed: bool) -> dict[tuple[str, int], int]:
    """Return an offset of each partition: the first, the next one, or that of a time; -1 where there is none."""
    from confluent_kafka import IsolationLevel, TopicPartition

    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    if not places:
        return {}
    with asking("looking for the ends of partitions"):
        asked = {TopicPartition(topic, number): spec for topic, number in places}
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER)
        return {(p.topic, p.partition): answer.result(ANSWER).offset for p, answer in answers.items()}
