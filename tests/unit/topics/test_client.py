"""How brokers are connected to, without any."""

from __future__ import annotations

from typing import Any

import pytest

import springtide as st
from springtide.topics.client import Client


@pytest.mark.parametrize(
    "setting",
    [
        "sasl.jaas.config",  # of Java's clients: it is refused, though not before the query was shown
        "sasl.kerberos.kinit.cmd",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    ],
)
def test_settings_with_secrets_show_nothing(setting: str) -> None:
    config = {setting: "hunter2", "client.id": "me"}
    source = st.kafka("localhost:9092", "calls", value="text", config=config)
    sink = st.kafka_sink("localhost:9092", "calls", config=config)
    stream = st.source("calls", source)
    query = st.Query("secret", stream.to(sink))
    shown = f"{source!r} {sink!r} {stream!r} {query!r} {query.plan()!r} {query.explain()}"
    assert "hunter2" not in shown
    assert "'me'" in shown
    assert source.client.settings({})[setting] == "hunter2"


@pytest.mark.parametrize("kind", ["admin", "consumer", "producer"])
@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"nonsense": "1"}, "nonsense"),
        ({"sasl.jaas.config": "hunter2"}, "JAAS"),
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"ssl.key.pem": "hunter2", "security.protocol": "SSL"}, "ssl.key.pem"),
    ],
    ids=["unknown", "not for this client", "unknown value", "no key"],
)
def test_settings_that_the_library_does_not_take_end_a_run_at_once(
    kind: str, config: dict[str, Any], named: str
) -> None:
    client = Client.of("(test)", "localhost:9092", config)
    with pytest.raises(
        st.SpringtideError, match=f"config= has a setting that Kafka's client does not accept: .*{named}"
    ) as error:
        getattr(client, kind)(*[{}][: kind != "admin"])
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("topic", ["", "Århus", "a b", "a/b", ".", "..", "x" * 250, 7])
def test_what_cannot_be_a_topic_is_refused_when_the_query_is_built(topic: Any) -> None:
    for step in (lambda: st.kafka("localhost:9092", [topic], value="text"), lambda: st.kafka_sink("localhost", topic)):
        with pytest.raises(st.QueryError, match=r"cannot be the name of a topic|give the name of a topic"):
            step()


def test_a_topic_leaves_room_for_the_name_of_its_ledger() -> None:
    longest = "x" * (249 - len(".ledger"))
    assert len(st.kafka_sink("localhost:9092", longest).ledger) == 249
    st.kafka("localhost:9092", "x" * 249, value="text")
    with pytest.raises(st.QueryError, match="at most 242"):
        st.kafka_sink("localhost:9092", longest + "x")
