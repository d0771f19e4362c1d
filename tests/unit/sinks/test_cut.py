"""Connections that are really cut half-way, in the middle of a request or of an answer: to PostgreSQL, and to an S3-compatible server with tables and files."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyiceberg.catalog import load_catalog

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from tests.servers.cutter import cutter, cutter_beside
from tests.servers.postgres import Postgres
from tests.unit.runtime.crashing import numbers

# connections that were cut are closed by nobody
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

COUNT = 60


def run_through(query: st.Query, folder: Path) -> None:
    run(query.plan(buckets=2), folder / "ckpt", Options(2, rows_per_epoch=6, patience=600))


@pytest.mark.parametrize("keys", [(), ("x",)])
def test_postgres(keys: tuple[str, ...], postgres: Postgres, tmp_path: Path) -> None:
    """From a table to a table."""
    postgres.ask(
        "CREATE TABLE calls AS SELECT to_timestamp(g) AS ts, 'k' || g % 7 AS key, g::int8 AS x"
        f" FROM generate_series(0, {COUNT - 1}) g"
    )
    with cutter(postgres.folder / ".s.PGSQL.5432", most=3_000) as between:
        url = f"postgresql://tester@127.0.0.1:{between.port}/tests"
        calls = st.source("calls", st.postgres(url, "calls", order_by="ts"), ts="ts")
        query = st.Query("cut", calls.to(st.postgres_sink(url, "numbers", keys=keys, create=True), name="out"))
        between.cutting = True
        run_through(query, tmp_path)
        gc.collect()
        assert between.cuts == between.most_cuts
    assert [x for (x,) in postgres.ask("SELECT x FROM numbers ORDER BY x")] == list(range(COUNT))


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_tables_and_files_in_a_server(kind: str, s3: str, s3_server: str, tmp_path: Path) -> None:
    bucket, secrets = s3.partition("?")[0], ("tester", "hush-hush")
    with cutter_beside(int(s3_server.rpartition(":")[2]), cuts=6, most=2_000) as between:

        def at(server: str) -> tuple[dict[str, str], dict[str, str]]:
            delta = {"AWS_ENDPOINT_URL": f"http://{server}", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
            delta |= {"AWS_ACCESS_KEY_ID": secrets[0], "AWS_SECRET_ACCESS_KEY": secrets[1]}
            catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{bucket}/lake"}
            catalog |= {"s3.endpoint": f"http://{server}", "s3.region": "us-east-1"}
            catalog |= {"s3.access-key-id": secrets[0], "s3.secret-access-key": secrets[1]}
            return delta | {"AWS_CONDITIONAL_PUT": "etag"}, catalog

        there = f"127.0.0.1:{between.port}"
        delta, catalog = at(there)
        sink: Any = {
            "delta": lambda: st.delta_sink(f"{bucket}/table", options=delta),
            "iceberg": lambda: st.iceberg_sink("lake.numbers", catalog=catalog),
            "parquet": lambda: st.parquet_sink(s3.replace(s3_server, there).replace("?", "/out?")),
        }[kind]()
        source = st.source("numbers", st.memory(numbers(COUNT)), ts="ts")
        run_through(st.Query("cut", source.to(sink, name="out")), tmp_path)
        assert between.end() == 6
        delta, catalog = at(s3_server)
        found: Any = {
            "delta": lambda: pl.read_delta(f"{bucket}/table", storage_options=delta),
            "iceberg": lambda: pl.from_arrow(
                load_catalog("default", **catalog).load_table("lake.numbers").scan().to_arrow()
            ),
            "parquet": lambda: pl.read_parquet(f"{bucket}/out/*.parquet", storage_options=delta),
        }[kind]()
    assert sorted(found["x"].to_list()) == list(range(COUNT))
