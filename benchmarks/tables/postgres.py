"""A million keys upserted into a table of PostgreSQL, exactly once, beside plain COPY of the same rows.

The server is on the same machine, with `fsync` on. In every round, turn about, on new tables but for the last:

    copy       the rows through one COPY in one transaction, into a table with the same primary key (the driver reads them with Polars)
    bare       the same into a table without any key or index
    upsert     a query on Spark, Parquet → st.postgres_sink(keys=…), from its start to its end; no key is there yet
    replace    the same once more, into the same table: every row replaces one

`ratio` is upsert over copy; `ratio_bare` and `ratio_replace` are upsert over bare and replace over copy.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.measure import result, say, scratch, session, summary
from benchmarks.tables.data import make
from springtide.sinks.databases.postgres import as_text
from tests.servers.postgres import Postgres, programs, running

COLUMNS = "src text, ts timestamptz, calls int8, seconds float8, district int4"
BLOCK = 200_000


def main(*args: str) -> None:
    """Run all sides."""
    parser = argparse.ArgumentParser(prog="postgres")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epoch", type=int, default=250_000, help="rows in an epoch")
    given = parser.parse_args(args)
    where = programs()
    if where is None:
        raise SystemExit("PostgreSQL is not installed: run scripts/setup.sh postgres")
    data = make(given.keys)
    spark = session()
    seconds: dict[str, list[float]] = {"copy": [], "bare": [], "upsert": [], "replace": []}
    with running(where, fsync="on") as server, scratch() as folder:
        for round in range(given.rounds + 1):
            sides = _sides(spark, server, data, folder / f"{round}", given.epoch)
            for name, side in sides.items():
                begun = time.perf_counter()
                side()
                seconds[name].append(time.perf_counter() - begun)
                say(f"{name}: {given.keys / seconds[name][-1]:,.0f} rows/s{'' if round else ' (warm-up)'}")
            _same(server)
    rates = {name: summary([given.keys / s for s in found[1:]]) for name, found in seconds.items()}
    median = {name: rate["median"] for name, rate in rates.items()}
    result(
        "postgres",
        rows_per_s=median["upsert"],
        ratio=median["upsert"] / median["copy"],
        ratio_bare=median["upsert"] / median["bare"],
        ratio_replace=median["replace"] / median["copy"],
        keys=given.keys,
        rows_per_epoch=given.epoch,
        rates=rates,
    )


def _sides(spark: Any, server: Postgres, data: Path, folder: Path, epoch: int) -> dict[str, Callable[[], None]]:
    server.ask("DROP TABLE IF EXISTS copied, bare, upserted; DROP TABLE IF EXISTS springtide_ledger")
    server.ask(f"CREATE TABLE copied ({COLUMNS}, PRIMARY KEY (src)); CREATE TABLE bare ({COLUMNS})")

    def upsert(checkpoint: str) -> None:
        rows = st.source("rows", st.parquet(data), ts="ts")
        query = st.Query("upserts", rows.to(st.postgres_sink(server.url, "upserted", keys="src", create=True)))
        query.start(spark, checkpoint=folder / checkpoint, instances=2, rows_per_epoch=epoch).wait()

    def replace() -> None:
        server.ask("DELETE FROM springtide_ledger")  # another checkpoint may go on with the table
        upsert("again")

    return {
        "copy": lambda: _copy(server, "copied", data),
        "upsert": lambda: upsert("first"),
        "bare": lambda: _copy(server, "bare", data),
        "replace": replace,
    }


def _copy(server: Postgres, table: str, data: Path) -> None:
    command = f"COPY {table} FROM STDIN (FORMAT csv)"
    with server.connect() as connection, connection.cursor() as cursor, cursor.copy(command) as copy:
        for file in sorted(data.glob("*.parquet")):
            for rows in pl.read_parquet(file).iter_slices(BLOCK):
                copy.write(as_text(rows).write_csv(include_header=False).encode())


def _same(server: Postgres) -> None:
    """Stop if the tables differ."""
    other = "SELECT count(*) FROM (SELECT src, ts, calls, seconds, district FROM {} EXCEPT SELECT src, ts, calls, seconds, district FROM {}) d"
    found = [server.ask(other.format(*pair)) for pair in (("copied", "upserted"), ("upserted", "copied"))]
    if found != [[(0,)], [(0,)]]:
        raise SystemExit(f"the tables differ: {found}")
