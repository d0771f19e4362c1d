"""One broker for all tests of a process, and topics in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from springtide.topics import records
from tests.kafka.broker import Broker, Topics, absent, broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A broker that is up."""
    if (why := absent()) is not None:
        pytest.skip(why)
    with broker() as server:
        yield server
        records.forget()


@pytest.fixture
def topics(kafka_broker: Broker) -> Iterator[Topics]:
    """What there is to do with topics."""
    yield Topics(kafka_broker.servers)
    records.forget()
