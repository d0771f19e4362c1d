"""How brokers are connected to, without any."""

from __future__ import annotations

import pytest

import springtide as st


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
