"""A table of PostgreSQL, on a real server."""

from __future__ import annotations

import gc
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Secret
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.sinks.databases.postgres import POSTGRES, PostgresSink
from springtide.sinks.databases.sink import table_and_keys
from springtide.state.names import MANIFESTS
from springtide.tables.postgres import server
from springtide.testing import check_sink
from tests.servers.postgres import Postgres
from tests.unit.runtime.crashing import numbers
from tests.unit.sinks.databases.faults import BREAKS, Breaking
from tests.unit.sinks.kinds import ROWS, Died, Runs, query_of


def sink(postgres: Postgres, **options: Any) -> PostgresSink:
    return st.postgres_sink(postgres.url, "numbers", **{"create": True, **options})


# runs that are killed leave connections open, as nobody is there to close them
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("keys", [(), ("x",)], ids=["appended", "by keys"])
def test_it_passes_the_suite_for_sinks(keys: tuple[str, ...], postgres: Postgres) -> None:
    def read(name: str) -> pl.DataFrame:
        found = postgres.ask(f"SELECT to_regclass('{name}')") != [(None,)]
        rows = postgres.ask(f'SELECT x FROM "{name}"') if found else []
        return pl.DataFrame({"x": [x for (x,) in rows]}, schema={"x": pl.Int64})

    url = postgres.url.replace("tester@", "tester:hush-hush@")
    check_sink(lambda name: st.postgres_sink(url, name, keys=keys, create=True), read, secrets=("hush-hush",))
    gc.collect()


def broken_at(breaking: Breaking, keys: tuple[str, ...]) -> st.Query:
    where = server("", "host=nowhere", None, None)
    table, by = table_and_keys("test", "numbers", keys)
    return query_of(PostgresSink(breaking, table, by, True, POSTGRES, server=where))


def xs(postgres: Postgres) -> list[int]:
    return [x for (x,) in postgres.ask("SELECT x FROM numbers ORDER BY x")]  # type: ignore[misc]


@pytest.mark.parametrize(("late", "error"), BREAKS)
@pytest.mark.parametrize("keys", [(), ("x",)])
def test_rows_are_there_once_whatever_breaks(
    keys: tuple[str, ...], late: bool, error: type[BaseException], tmp_path: Path, postgres: Postgres
) -> None:
    connect = sink(postgres).server.connect
    counting = Breaking(connect, 0, late)
    Runs(tmp_path / "ckpt").run(broken_at(counting, keys))
    for number in range(1, counting.operations + 1, 2 if error is Died and not keys else 5):
        postgres.ask("DROP TABLE numbers, springtide_ledger")
        folder = tmp_path / str(number)
        breaking = Breaking(connect, number, late, error)
        with suppress(st.UnavailableError):
            Runs(folder / "ckpt").run(broken_at(breaking, keys))
        Runs(folder / "ckpt").run(broken_at(breaking, keys))
        assert breaking.operations >= number
        assert xs(postgres) == list(range(ROWS))


@pytest.mark.parametrize("keys", [(), ("x",)])
def test_the_server_stops_and_starts_while_a_query_runs(
    keys: tuple[str, ...], tmp_path: Path, postgres: Postgres
) -> None:
    def crash(engine: Any) -> bool:
        if engine.manifest.epoch == 1:
            postgres.stop()
            postgres.start()
        return True

    plan = query_of(sink(postgres, keys=keys)).plan()
    engine = run(plan, tmp_path / "ckpt", Options(1, rows_per_epoch=3, patience=600), between=crash)
    assert xs(postgres) == list(range(ROWS))
    assert "works again" in str(engine.events)


def test_a_stale_run_writes_nothing_any_more(tmp_path: Path, postgres: Postgres) -> None:
    def take_over() -> None:
        postgres.ask("UPDATE springtide_ledger SET generation = generation + 1")

    with pytest.raises(st.SinkError, match=r"taken over by .*out .*'past'"):
        Runs(tmp_path / "ckpt").run(query_of(sink(postgres)), between=take_over)
    assert xs(postgres) == [0, 1, 2]


def test_upserts_keep_the_latest_row(tmp_path: Path, postgres: Postgres) -> None:
    run(query_of(sink(postgres, keys="key")).plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=5))
    last = {row["key"]: row["x"] for row in numbers(ROWS).to_dicts()}
    assert dict(postgres.ask("SELECT key, x FROM numbers")) == last  # type: ignore[arg-type]


def test_the_last_entry_was_deleted(tmp_path: Path, postgres: Postgres) -> None:
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink(postgres)), epochs=2)
    postgres.ask("DELETE FROM springtide_ledger")
    with pytest.raises(st.SinkError, match="unknown whether those of epoch 1"):
        runs.run(query_of(sink(postgres)))


def test_with_keys_a_deleted_entry_is_made_anew(tmp_path: Path, postgres: Postgres) -> None:
    runs = Runs(tmp_path / "ckpt")
    for epochs in (2, 0, 1, None):
        runs.run(query_of(sink(postgres, keys="x")), epochs=epochs)
        there = xs(postgres)
        postgres.ask("DELETE FROM springtide_ledger")
    assert there == list(range(ROWS))


@pytest.mark.parametrize(
    ("table", "keys", "reason"),
    [
        (None, (), "does not exist; create it"),
        ("x int8, ts timestamptz", (), "has no column 'key'"),
        ("x int4, ts timestamptz, key text", (), "has 'x' as int4, but rows have Int64; make it int8"),
        ("x int8, ts timestamptz(0), key text", (), "would round 'ts'"),
        ("x numeric(3), ts timestamptz, key text", (), r"has 'x' as numeric\(3, 0\), .* make it numeric\(19, 0\)"),
        ("x int8, ts timestamptz, key text, more int NOT NULL", (), "needs a value for 'more'"),
        ("x int8, ts timestamptz, key text", ("key",), "cannot be upserted by key"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_at_the_start(
    table: str | None, keys: tuple[str, ...], reason: str, tmp_path: Path, postgres: Postgres
) -> None:
    if table is not None:
        postgres.ask(f"CREATE TABLE numbers ({table})")
    with pytest.raises(st.SinkError, match=reason):
        Runs(tmp_path / "ckpt").run(query_of(sink(postgres, keys=keys, create=False)))
    assert postgres.ask("SELECT to_regclass('springtide_ledger')") == [(None,)]


@pytest.mark.parametrize(
    ("kind", "dtype", "reason"),
    [
        ("interval(0)", pl.Duration("us"), "would round 'y'"),
        ("interval(5)", pl.Duration("us"), "would round 'y'"),
        ("interval(2)", pl.Duration("ms"), "would round 'y'"),
        ("interval day to second(3)", pl.Duration("us"), "would round 'y'"),
        ("interval hour", pl.Duration("us"), "would round 'y'"),
        ("interval(3)", pl.Duration("ms"), None),
        ("interval(6)", pl.Duration("us"), None),
        ("timestamp(3)", pl.Datetime("us"), "would round 'y'"),
        ("timestamp(3)", pl.Datetime("ms"), None),
        ("numeric(4, 2)", pl.Decimal(9, 2), r"as numeric\(4, 2\), which is too small .*; make it numeric\(9, 2\)"),
        ("numeric(9, 1)", pl.Decimal(9, 2), "would round 'y'"),
        ("numeric(10, 3)", pl.Decimal(9, 2), None),
        ("numeric(9, 2)", pl.Decimal(9, 2), None),
        ("numeric(20, -1)", pl.Int16(), "would round 'y'"),
        ("numeric(21, 2)", pl.Int64(), None),
        ("numeric(20, 2)", pl.Int64(), "too small"),
        ("numeric(9)", pl.Int32(), "too small"),
        ("numeric(2)", pl.UInt8(), "too small"),
        ("numeric(19)", pl.UInt64(), "too small"),
        ("numeric", pl.UInt64(), None),
    ],
)
def test_a_column_that_rounds_or_overflows_is_refused_at_the_start(
    kind: str, dtype: pl.DataType, reason: str | None, tmp_path: Path, postgres: Postgres
) -> None:
    postgres.ask(f"CREATE TABLE numbers (y {kind})")
    rows = st.source("rows", st.memory(pl.DataFrame({"y": pl.Series([None], dtype=dtype)})))
    query = st.Query("types", rows.to(sink(postgres, create=False)))
    with nullcontext() if reason is None else pytest.raises(st.SinkError, match=reason):
        run(query.plan(), tmp_path / "ckpt", Options(1))


def test_the_extremes_of_integers_fit_where_they_are_said_to(tmp_path: Path, postgres: Postgres) -> None:
    kinds = {pl.Int8(): 3, pl.Int16(): 5, pl.Int32(): 10, pl.UInt32(): 10, pl.Int64(): 19, pl.UInt64(): 20}
    columns = {f"c{n}": dtype for n, dtype in enumerate(kinds)}
    ends = pl.DataFrame(
        {name: pl.select(pl.concat_list(dtype.min(), dtype.max())).item() for name, dtype in columns.items()},
        schema=columns,
    )
    postgres.ask(f"CREATE TABLE numbers ({', '.join(f'{n} numeric({kinds[t]})' for n, t in columns.items())})")
    query = st.Query("ends", st.source("rows", st.memory(ends)).to(sink(postgres, create=False)))
    run(query.plan(), tmp_path / "ckpt", Options(1))
    assert sorted(postgres.ask(f"SELECT {', '.join(columns)} FROM numbers")) == ends.rows()


def test_values_come_as_they_are(tmp_path: Path, postgres: Postgres) -> None:
    frame = pl.DataFrame(
        {
            "ts": [datetime(2024, 5, 1, 12, microsecond=7, tzinfo=UTC)] * 2,
            "naive": [datetime(2024, 5, 1, 12), None],
            "flag": [True, None],
            "small": pl.Series([-5, None], dtype=pl.Int8),
            "large": pl.Series([2**64 - 1, None], dtype=pl.UInt64),
            "real": [0.1, float("inf")],
            "day": [date(2024, 5, 1), None],
            "clock": [time(12, 30, 0, 5), None],
            "took": [timedelta(days=400, microseconds=3), None],
            "price": [Decimal("1.50"), None],
            "raw": [b"\x00\xff", None],
            "many": [[1, 2], None],
            "parts": [{"a": 1, "b": "x"}, None],
            "text": ['"\n,é\\.', ""],
        }
    )
    source = st.source("rows", st.memory(frame), ts="ts")
    run(st.Query("values", source.to(sink(postgres))).plan(), tmp_path / "ckpt", Options(1))
    found = postgres.ask(f"SELECT {', '.join(frame.columns)} FROM numbers ORDER BY small NULLS LAST")
    assert found == frame.rows()


@pytest.mark.parametrize("keys", [(), ("text",)])
def test_a_column_of_texts_may_have_what_would_end_a_copy(
    keys: tuple[str, ...], tmp_path: Path, postgres: Postgres
) -> None:
    texts = ["a", "\\.", "", "b\n\\.\nc", '"', "\\N", "z"]
    query = st.Query("texts", st.source("rows", st.memory(pl.DataFrame({"text": texts}))).to(sink(postgres, keys=keys)))
    run(query.plan(), tmp_path / "ckpt", Options(1))
    assert sorted(postgres.ask("SELECT text FROM numbers")) == sorted((text,) for text in texts)  # type: ignore[type-var]


def test_a_column_alone_may_have_nulls(tmp_path: Path, postgres: Postgres) -> None:
    rows = pl.DataFrame({"text": [None, "", None]}, schema={"text": pl.String})
    run(st.Query("nulls", st.source("rows", st.memory(rows)).to(sink(postgres))).plan(), tmp_path / "ckpt", Options(1))
    assert postgres.ask("SELECT text FROM numbers ORDER BY text") == [("",), (None,), (None,)]


@pytest.mark.parametrize("keys", [(), ("100%",)])
def test_names_may_have_any_characters(keys: tuple[str, ...], tmp_path: Path, postgres: Postgres) -> None:
    postgres.ask('DROP SCHEMA IF EXISTS "50% {off}" CASCADE; CREATE SCHEMA "50% {off}"')
    names = ["100%", 'the "best"', "it's %s", "Århus {}", "select", "A", "a", "new\nline", "é" * 31]
    rows = pl.DataFrame({name: [1, 2] for name in names})
    made = st.postgres_sink(postgres.url, '50% {off}.all "%s"', keys=keys, create=True)
    query = st.Query("names", st.source("rows", st.memory(rows)).to(made, name="out"))
    runs = Runs(tmp_path / "ckpt")
    for epochs in (1, None):
        runs.run(query, epochs=epochs)
    assert sorted(postgres.ask('SELECT * FROM "50% {off}"."all ""%s"""')) == rows.rows()


@pytest.mark.parametrize(
    ("table", "column"), [("x" * 64, "x"), ("é" * 32, "x"), ("s" * 64 + ".t", "x"), ("t", "x" * 64)]
)
def test_names_that_would_be_cut_off_are_refused_when_the_query_is_built(table: str, column: str) -> None:
    """Two of them could be one table."""
    stream = st.source("rows", st.memory(schema={column: pl.Int64}))
    with pytest.raises(st.QueryError, match="has more than 63 bytes, and PostgreSQL cuts off"):
        stream.to(st.postgres_sink("postgresql://db.example/calls", table))


def test_the_ledger_is_no_table_for_rows() -> None:
    with pytest.raises(
        st.QueryError, match=r"the table springtide_ledger .* says which epochs are in the other tables; name another"
    ):
        st.postgres_sink("postgresql://db.example/calls", "mine.springtide_ledger")


def test_keys_that_no_index_takes_are_refused_while_nothing_is_committed(tmp_path: Path, postgres: Postgres) -> None:
    digits = Random(0).randbytes(1300).hex()
    for more, fits in (("x", False), ("", True)):
        rows = st.source("rows", st.memory(pl.DataFrame({"k": [digits + more], "x": [1]})))
        query = st.Query("keys", rows.to(sink(postgres, keys="k")))
        with nullcontext() if fits else pytest.raises(st.SinkError, match="whose keys have 2,601 bytes, but an index"):
            run(query.plan(), tmp_path / "ckpt", Options(1))
    assert postgres.ask("SELECT length(k) FROM numbers") == [(2600,)]


def test_what_is_beyond_a_limit_of_the_server_ends_the_run_at_once(tmp_path: Path, postgres: Postgres) -> None:
    postgres.ask("CREATE TABLE numbers (k text, x int8)")
    postgres.ask("CREATE INDEX ON numbers (k)")
    rows = st.source("rows", st.memory(pl.DataFrame({"k": [Random(0).randbytes(3000).hex()], "x": [1]})))
    with pytest.raises(st.SinkError, match="does not take the rows: index row"):
        run(st.Query("limit", rows.to(sink(postgres))).plan(), tmp_path / "ckpt", Options(1, patience=600))


@pytest.mark.parametrize(
    ("change", "reason", "undo"),
    [
        ("ALTER x TYPE int2", "has 'x' as int2, but rows have Int64; make it int8", "ALTER x TYPE int8"),
        ("ALTER ts TYPE timestamptz(0)", "would round 'ts'", "ALTER ts TYPE timestamptz"),
        ("ADD CONSTRAINT small CHECK (x < 3)", "violates check constraint", "DROP CONSTRAINT small"),
        ("RENAME key TO word", 'column "key" .*does not exist', "RENAME word TO key"),
    ],
)
@pytest.mark.parametrize("keys", [(), ("x",)])
def test_a_table_that_is_changed_while_a_query_runs_gets_nothing_that_it_would_round(
    change: str, reason: str, undo: str, keys: tuple[str, ...], tmp_path: Path, postgres: Postgres
) -> None:
    """When it is changed back, the rows come."""
    runs = Runs(tmp_path / "ckpt")
    with pytest.raises(st.SinkError, match=reason):
        runs.run(query_of(sink(postgres, keys=keys)), between=lambda: postgres.ask(f"ALTER TABLE numbers {change}"))
    assert xs(postgres) == [0, 1, 2]
    postgres.ask(f"ALTER TABLE numbers {undo}")
    runs.run(query_of(sink(postgres, keys=keys)))
    assert xs(postgres) == list(range(ROWS))


def test_the_longest_lengths_of_time_come_as_they_are(tmp_path: Path, postgres: Postgres) -> None:
    rows = pl.DataFrame({"took": pl.Series([2**63 - 1, 1 - 2**63]).cast(pl.Duration("us"))})
    query = st.Query("long", st.source("rows", st.memory(rows)).to(sink(postgres)))
    run(query.plan(), tmp_path / "ckpt", Options(1))
    found = postgres.ask("SELECT (extract(epoch FROM took) * 1000000)::numeric FROM numbers")
    assert sorted(int(str(took).partition(".")[0]) for (took,) in found) == [1 - 2**63, 2**63 - 1]


def test_rows_that_the_table_does_not_take_end_the_run_with_the_reason(tmp_path: Path, postgres: Postgres) -> None:
    """When the table takes them, they come."""
    postgres.ask("CREATE TABLE numbers (x int8 CONSTRAINT small CHECK (x < 5), ts timestamptz, key text)")
    with pytest.raises(st.SinkError, match=r"does not take the rows: .* violates check constraint"):
        run(query_of(sink(postgres)).plan(), tmp_path / "ckpt", Options(1, patience=600))
    postgres.ask("ALTER TABLE numbers DROP CONSTRAINT small")
    run(query_of(sink(postgres)).plan(), tmp_path / "ckpt", Options(1))
    assert xs(postgres) == list(range(ROWS))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pl.Series("y", ["a", "a\x00b"]), "the character NUL"),
        (pl.Series("y", [["a\x00b"], None]), "the character NUL"),
        (pl.Series("y", [{"f": [1.0]}, {"f": [float("nan")]}]), "NaN or infinity inside JSON"),
        (pl.Series("y", [12_001, None]).cast(pl.Time), "times with nanoseconds"),
        (pl.Series("y", [2_932_897, 0], dtype=pl.Int32).cast(pl.Date), "a year before 1 or after 9999"),
        (pl.Series("y", [253_402_300_800_000_000]).cast(st.TIME), "a year before 1 or after 9999"),
        (pl.Series("y", [2**62]).cast(st.TIME), "a year before 1 or after 9999"),
        (pl.Series("y", [-(2**31)], dtype=pl.Int32).cast(pl.Date), "a year before 1 or after 9999"),
        (pl.Series("y", [[2**62]]).cast(pl.List(pl.Datetime("ms"))), "a year before 1 or after 9999"),
        (pl.Series("y", [2**62]).cast(pl.Duration("ms")), "a length of time of more than 292,000 years"),
    ],
    ids=[
        "NUL",
        "NUL in JSON",
        "NaN in JSON",
        "nanoseconds",
        "a late day",
        "a late time",
        "a time in no calendar",
        "a day in no calendar",
        "a time in no calendar in JSON",
        "a length of time",
    ],
)
def test_values_that_no_table_takes_are_refused_while_nothing_is_committed(
    column: pl.Series, reason: str, tmp_path: Path, postgres: Postgres
) -> None:
    query = st.Query("values", st.source("rows", st.memory(pl.DataFrame([column]))).to(sink(postgres)))
    with pytest.raises(st.SinkError, match=f"column 'y' has {reason}, which this database cannot hold"):
        run(query.plan(), tmp_path / "ckpt", Options(1, patience=600))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_rows_without_a_key_are_refused_while_nothing_is_committed(tmp_path: Path, postgres: Postgres) -> None:
    rows = st.source("rows", st.memory(pl.DataFrame({"k": ["a", None], "x": [1, 2]})))
    with pytest.raises(st.SinkError, match="without a value for the key 'k'; filter"):
        run(st.Query("keys", rows.to(sink(postgres, keys="k"))).plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_secrets_are_nowhere() -> None:
    made = st.postgres_sink("postgresql://me:hush-hush@db.example/calls", "heavy", options={"sslmode": "require"})
    other = st.postgres_sink("postgresql://me@db.example/calls", "heavy", password=Secret("hush-hush"))
    assert "hush" not in f"{made} {made!r} {made.describe()} {made.place} {other!r}"
    assert dict(made.server.secrets)["password"].reveal() == "hush-hush"
    with pytest.raises(st.QueryError, match="not valid") as error:
        st.postgres_sink("postgresql://me:hush-hush@db/x?nonsense=1", "heavy")
    assert "hush" not in str(error.value)
