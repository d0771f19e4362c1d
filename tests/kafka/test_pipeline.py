"""`make pipeline`, on fewer records: from Kafka to PostgreSQL on Spark, scaled, killed with its JVM and its workers, and right at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import pipeline
from tests.kafka.broker import Topics, absent, broker
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.spark


def test_from_kafka_to_postgres(postgres: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if (why := absent()) is not None:
        pytest.skip(why)
    with broker() as kafka:
        pipeline.show(Topics(kafka.servers), postgres, tmp_path / "checkpoint", records=1200, partitions=2)
    assert "each of them once, and right" in capfd.readouterr().out
