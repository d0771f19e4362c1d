"""A table of PostgreSQL as bounded input, on a real server: the table as it was when the query began."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.connectors import Lineage, Owner, Secret
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.sources import postgres_feed
from springtide.tables.names import quoted
from springtide.testing import check_source, compare
from tests.servers.postgres import Postgres

# runs that are killed leave connections open, as nobody is there to close them
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

MAKE = """
CREATE TABLE calls (id int8 PRIMARY KEY, ts timestamptz NOT NULL, src text);
INSERT INTO calls SELECT g, '2024-05-01Z'::timestamptz + make_interval(secs => (g * 7) % 40), 's' || g % 3 FROM generate_series(1, 40) g;
"""


@pytest.fixture
def calls(postgres: Postgres) -> Postgres:
    postgres.ask(MAKE)
    return postgres


def source(postgres: Postgres, **options: Any) -> Any:
    return st.postgres(postgres.url, "calls", **options)


def sums(postgres: Postgres, sink: Any, **options: Any) -> st.Query:
    calls = st.source("calls", source(postgres, **{"order_by": "ts", **options}), ts="ts")
    counts = calls.aggregate(by="src", window=st.tumbling("10s"), n=st.count(), ids=st.sum("id"), name="counts")
    return st.Query("calls", counts.to(sink))


@pytest.mark.parametrize("order_by", [None, "ts", "id"])
def test_it_passes_the_suite_for_sources(
    order_by: str | None, calls: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_feed, "_PIECE", 4)
    calls.ask("DELETE FROM calls WHERE id > 9")
    found = check_source(lambda: source(calls, order_by=order_by), rows=9, ts="ts")
    assert sorted(found["id"].to_list()) == list(range(1, 10))
    if order_by is not None:
        assert found[order_by].is_sorted()


def test_a_table_of_many_pages_is_read_in_slices(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_feed, "_PIECE", 100)
    postgres.ask("CREATE TABLE calls AS SELECT g AS id, repeat('x', 500) AS src FROM generate_series(1, 1000) g")
    postgres.ask("DELETE FROM calls WHERE id BETWEEN 100 AND 600")
    feed = source(postgres).open(Owner("q", "calls", Lineage("x"), 1, kind="source"))
    take = feed.take(None, 400, None)
    assert len(take.slices) > 1
    assert sum(part.rows for part in take.slices) >= 350
    assert not take.ended
    feed.close()


def test_partitions_are_physical_streams(postgres: Postgres) -> None:
    postgres.ask("CREATE TABLE calls (id int8, src text) PARTITION BY LIST (src)")
    for src in ("a", "b", "c"):
        postgres.ask(f"CREATE TABLE calls_{src} PARTITION OF calls FOR VALUES IN ('{src}')")
    postgres.ask("INSERT INTO calls SELECT g, CASE WHEN g < 5 THEN 'a' ELSE 'b' END FROM generate_series(1, 9) g")
    check_source(lambda: source(postgres), rows=9)
    assert list(source(postgres).read_all()) == [f'"public"."calls_{src}"' for src in ("a", "b", "c")]


def test_rows_of_a_query_are_those_of_the_reference(calls: Postgres, tmp_path: Path) -> None:
    sink = st.memory_sink()
    query = sums(calls, sink)
    run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=7))
    compare(sink.rows(), query.run_reference().rows())


# ── what becomes of the table meanwhile ───────────────────────────────────────────────────────────────────────────────


def test_what_others_do_while_a_run_reads_is_not_seen(calls: Postgres, tmp_path: Path) -> None:
    sink, expected = st.memory_sink(), sums(calls, st.memory_sink()).run_reference().rows()

    def change(engine: Any) -> bool:
        if engine.manifest.epoch < 0:  # it has not begun yet
            return True
        calls.ask(f"INSERT INTO calls VALUES ({100 + engine.manifest.epoch}, '2024-05-01 00:00:39Z', 'new')")
        calls.ask("UPDATE calls SET src = 'changed' WHERE id = 37")
        calls.ask("DELETE FROM calls WHERE id IN (38, 39)")
        return True

    run(sums(calls, sink).plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=7), between=change)
    compare(sink.rows(), expected)


def stopped(postgres: Postgres, tmp_path: Path, sink: Any, **options: Any) -> None:
    """Run two epochs, and stop."""
    run(
        sums(postgres, sink, **options).plan(),
        tmp_path / "ckpt",
        Options(1, rows_per_epoch=7),
        between=lambda engine: engine.manifest.epoch < 1,
    )


@pytest.mark.parametrize("order_by", ["ts", "id"])
def test_rows_that_came_between_two_runs_are_no_part_of_the_input(
    order_by: str, calls: Postgres, tmp_path: Path
) -> None:
    sink = st.memory_sink()
    query = sums(calls, sink, order_by=order_by)
    expected = query.run_reference().rows()
    with calls.connect() as open_then:  # its rows were not to be seen at the beginning, though it had begun
        open_then.execute("INSERT INTO calls VALUES (51, '2024-05-01 00:00:39Z', 'new')")
        stopped(calls, tmp_path, sink, order_by=order_by)
        open_then.commit()
    calls.ask("INSERT INTO calls VALUES (52, '2024-05-01 00:00:39Z', 'new')")
    run(query.plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=7))
    compare(sink.rows(), expected)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE calls SET src = 'x' WHERE ts > '2024-05-01 00:00:35Z'", "4 were updated or deleted"),
        (
            "DELETE FROM calls WHERE id = (SELECT max(id) FROM calls WHERE ts > '2024-05-01 00:00:35Z')",
            "1 were updated",
        ),
        ("VACUUM FULL calls", "was dropped"),
        ("DROP TABLE calls;" + MAKE, "was dropped"),
    ],
)
def test_what_was_changed_between_two_runs_is_noticed(
    change: str, reason: str, calls: Postgres, tmp_path: Path
) -> None:
    sink = st.memory_sink()
    stopped(calls, tmp_path, sink)
    with calls.connect() as connection:
        connection.autocommit = True
        connection.execute(change)
    with pytest.raises(st.SpringtideError, match=f"step calls .source.: table .*{reason}"):
        run(sums(calls, sink).plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=7))


def test_rows_that_were_read_already_may_change(calls: Postgres, tmp_path: Path) -> None:
    sink = st.memory_sink()
    query = sums(calls, sink)
    expected = query.run_reference().rows()
    stopped(calls, tmp_path, sink)
    calls.ask("DELETE FROM calls WHERE ts <= '2024-05-01 00:00:13Z'")
    run(query.plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=7))
    compare(sink.rows(), expected)


def test_the_server_stops_and_starts_while_a_query_reads(calls: Postgres, tmp_path: Path) -> None:
    sink = st.memory_sink()
    query = sums(calls, sink)
    expected = query.run_reference().rows()

    def crash(engine: Any) -> bool:
        if engine.manifest.epoch == 1:
            calls.stop()
            calls.start()
        return True

    engine = run(query.plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=7, patience=600), between=crash)
    compare(sink.rows(), expected)
    assert "works again" in str(engine.events)


# ── columns and values ────────────────────────────────────────────────────────────────────────────────────────────────


def test_values_that_the_sink_wrote_come_back(tmp_path: Path, postgres: Postgres) -> None:
    frame = pl.DataFrame(
        {
            "ts": [datetime(2024, 5, 1, 12, microsecond=7, tzinfo=UTC)] * 2,
            "naive": [datetime(2024, 5, 1, 12), None],
            "flag": [True, None],
            "small": pl.Series([-5, None], dtype=pl.Int16),
            "large": [Decimal(2**64 - 1), None],
            "real": [0.1, float("inf")],
            "day": [date(2024, 5, 1), None],
            "clock": [time(12, 30, 0, 5), None],
            "took": [timedelta(days=400, microseconds=3), None],
            "price": [Decimal("-1.50"), None],
            "raw": [b"\x00\xff", None],
            "text": ['"\n,é\\.', ""],
        },
        schema_overrides={"large": pl.Decimal(20, 0), "price": pl.Decimal(12, 2)},
    )
    rows = st.source("rows", st.memory(frame), ts="ts")
    sink = st.postgres_sink(postgres.url, "calls", create=True)
    run(st.Query("values", rows.to(sink)).plan(), tmp_path / "ckpt", Options(1))
    found = check_source(lambda: source(postgres), rows=2, ts="ts")
    assert found.schema == frame.schema
    assert found.rows() == frame.rows()


def test_values_without_a_counterpart_are_rejected(postgres: Postgres, tmp_path: Path) -> None:
    postgres.ask("CREATE TABLE calls (id int8, day date, took interval, price numeric(5, 1))")
    postgres.ask(
        "INSERT INTO calls VALUES (1, 'infinity', '1 day', 1), (2, '2024-05-01', '1 month', 1), (3, NULL, NULL, 'NaN'), (4, NULL, '1 s', 1)"
    )
    good, wrong = st.memory_sink(), st.memory_sink()
    stream = st.source("calls", source(postgres))
    query = st.Query("q", stream.to(good, name="good"), stream.rejected.to(wrong, name="wrong"))
    run(query.plan(), tmp_path / "ckpt", Options(1))
    assert good.rows()["id"].to_list() == [4]
    reasons = [
        "column 'day' is infinite",
        "column 'took' has months, which have no fixed length",
        "column 'price' is NaN",
    ]
    assert wrong.rows()["reason"].to_list() == reasons


@pytest.mark.parametrize(
    ("kind", "dtype", "values", "fit", "reason"),
    [
        ("timestamptz", st.TIME, ["294246-12-31Z", "4713-01-01Z BC", "294276-12-31Z"], 2, "is after 294246-12-31"),
        ("timestamp", pl.Datetime("us"), ["294246-12-31", "4713-01-01 BC", "294247-01-11"], 2, "is after 294246-12-31"),
        ("date", pl.Date, ["5874897-12-31", "4713-01-01 BC", "-infinity"], 2, "is infinite"),
        ("interval", pl.Duration("us"), ["106751991 days", "-106751991 days", "2147483647 days"], 2, "is too long"),
        ("time", pl.Time, ["23:59:59.999999", "00:00", "24:00"], 2, "is 24:00, which is not a time of day here"),
        (
            "numeric",
            pl.Float64,
            ["NaN", "-Infinity", "0", "1.7976931348623157e308", "5e-324", "1e400", "-1e-400"],
            5,
            "is too large or too small for a float",
        ),
    ],
    ids=["timestamptz", "timestamp", "date", "interval", "time", "numeric"],
)
def test_values_at_the_limits_are_read_or_rejected(
    kind: str, dtype: Any, values: list[str], fit: int, reason: str, postgres: Postgres, tmp_path: Path
) -> None:
    """One that the server cannot convert would end the run for ever, and one that wraps around would be another."""
    postgres.ask(f"CREATE TABLE calls (id int8, x {kind})")
    rows = [f"({number}, '{value}')" for number, value in enumerate(values)]
    postgres.ask(f"INSERT INTO calls VALUES {', '.join(rows)}, (9, NULL)")
    good, wrong = st.memory_sink(), st.memory_sink()
    stream = st.source("calls", source(postgres, schema={"id": pl.Int64, "x": dtype}))
    query = st.Query("q", stream.to(good, name="good"), stream.rejected.to(wrong, name="wrong"))
    run(query.plan(), tmp_path / "ckpt", Options(1))
    assert good.rows()["id"].sort().to_list() == [*range(fit), 9]
    assert good.rows()["x"].null_count() == 1
    assert wrong.rows()["reason"].to_list() == [f"column 'x' {reason}"] * (len(values) - fit)
    if kind in ("timestamp", "timestamptz", "date"):  # what is read says the same again, in order of time
        late = st.source("calls", source(postgres, order_by="x", where="x IS NOT NULL"), ts="x")
        run(st.Query("late", late.to(st.memory_sink())).plan(), tmp_path / "late", Options(1))


def test_names_may_have_any_characters(postgres: Postgres) -> None:
    names = ["100%", 'the "best"', "it's %s", "Århus {}", "select", "A", "a", "new\nline", "a.b"]
    columns = ", ".join(f"{quoted(name)} int8" for name in names)
    postgres.ask('DROP SCHEMA IF EXISTS "50% {off}" CASCADE; CREATE SCHEMA "50% {off}"')
    postgres.ask(f'CREATE TABLE "50% {{off}}"."all ""%s""" ({columns})')
    postgres.ask(f'INSERT INTO "50% {{off}}"."all ""%s""" VALUES ({", ".join("1" for _ in names)})')
    found = check_source(lambda: st.postgres(postgres.url, '50% {off}.all "%s"'), rows=1)
    assert found.rows(named=True) == [dict.fromkeys(names, 1)]


def test_columns_and_rows_are_chosen(calls: Postgres) -> None:
    calls.ask("ALTER TABLE calls ADD COLUMN price numeric, ADD COLUMN tags text[]")
    with pytest.raises(st.QueryError, match=r"'price' as numeric.*; give schema="):
        st.source("calls", source(calls))
    chosen = {"id": pl.Int64, "price": pl.Float64, "tags": pl.String}
    found = check_source(lambda: source(calls, schema=chosen, where="id < 10 AND src = 's1' AND src NOT LIKE '%x'"))
    assert found.schema == pl.Schema(chosen)
    assert found["id"].to_list() == [1, 4, 7]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"schema": {"idd": pl.Int64}}, "has no column 'idd'; it has id, ts, src"),
        ({"schema": {"id": pl.Int32}}, "has 'id' as int8, which cannot be read as i32"),
        ({"order_by": "when"}, "has no column 'when'"),
        ({"where": ""}, "where=''"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_query_is_built(
    options: dict[str, Any], reason: str, calls: Postgres
) -> None:
    with pytest.raises(st.QueryError, match=reason):
        st.source("calls", source(calls, **options))


def test_a_view_is_refused(calls: Postgres) -> None:
    calls.ask("CREATE VIEW seen AS SELECT * FROM calls; CREATE MATERIALIZED VIEW kept AS SELECT * FROM calls")
    with pytest.raises(st.QueryError, match=r"is a view.*; .*table"):
        st.source("seen", st.postgres(calls.url, "seen"))
    assert len(st.postgres(calls.url, "public.kept").read_all()['"public"."kept"']) == 40
    with pytest.raises(st.QueryError, match="does not exist"):
        st.source("none", st.postgres(calls.url, "none"))


def test_rows_without_a_place_in_the_order_are_refused(calls: Postgres, tmp_path: Path) -> None:
    calls.ask("UPDATE calls SET src = NULL WHERE id = 7")
    query = st.Query("q", st.source("calls", source(calls, order_by="src"), ts="ts").to(st.memory_sink()))
    with pytest.raises(st.SpringtideError, match="has rows without a value in 'src'"):
        run(query.plan(), tmp_path / "ckpt", Options(1))


def test_secrets_are_nowhere(calls: Postgres) -> None:
    url = calls.url.replace("tester@", "tester:hush-hush@")
    calls.ask("DELETE FROM calls WHERE id > 3")
    check_source(lambda: st.postgres(url, "calls"), rows=3, ts="ts", secrets=("hush-hush",))
    made = st.postgres(calls.url, "calls", password=Secret("hush-hush"))
    assert "hush" not in f"{made!r} {made.describe()}"
