"""TLS and passwords, with a real broker; and nobody finds the passwords afterwards."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Secret
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.topics import records
from tests.kafka.broker import Lock, Topics, absent, broker

PASSWORD = "hunter2-very-secret"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that is its own authority: with its key, and alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both, alone = folder / "broker.pem", folder / "ca.pem"
    both.write_bytes(private + public)
    alone.write_bytes(public)
    return both, alone


def test_tls_and_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    if (why := absent()) is not None:
        pytest.skip(why)
    keys, ca = certificate(tmp_path)
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    caplog.set_level(logging.DEBUG)
    with broker(lock=Lock(keys, "me", PASSWORD)) as server:
        topics = Topics(server.servers)
        source, shown = topics.new(partitions=2), ""
        topics.put(source, [json.dumps({"n": n, "ts": f"2024-05-01T00:00:{n:02d}Z"}).encode() for n in range(30)])
        for mechanism, password in (("PLAIN", PASSWORD), ("SCRAM-SHA-512", Secret.env("KAFKA_PASSWORD"))):
            config = {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(ca),
                "sasl.mechanism": mechanism,
                "sasl.username": "me",
                "sasl.password": password,
            }
            out, checkpoint = topics.new(), tmp_path / mechanism
            calls = st.source(
                "calls",
                st.kafka(server.locked, source, schema={"n": pl.Int64, "ts": st.TIME}, end="now", config=config),
                ts="ts",
            )
            query = st.Query("secure", calls.to(st.kafka_sink(server.locked, out, config=config), name="out"))
            plan = query.plan()
            inprocess.run(plan, checkpoint, Options(2, rows_per_epoch=10, patience=120))
            assert sorted(json.loads(m.value())["n"] for m in topics.get(out)) == list(range(30))
            files = [file for file in checkpoint.rglob("*") if file.is_file()]
            assert files
            assert not [file for file in files if PASSWORD.encode() in file.read_bytes()]
            shown += f"{plan!r} {query!r} {query.explain()} {calls!r}"
        wrong = config | {"sasl.password": "not-" + PASSWORD}
        feed = st.kafka(server.locked, source, schema={"n": pl.Int64}, config=wrong)
        monkeypatch.setattr("springtide.topics.client.ANSWER", 3.0)
        with pytest.raises(ConnectionError) as refused:
            feed.read_all()
        records.forget()
    said = capfd.readouterr()
    assert PASSWORD not in f"{shown} {refused.value} {caplog.text} {said.out} {said.err}"
