"""A table of SQLite: what holds for every database with a DB-API."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.sinks.databases.dialects import SQLITE, Dialect
from springtide.state.names import MANIFESTS
from springtide.testing import check_sink
from tests.unit.runtime.crashing import SCHEMA, numbers
from tests.unit.sinks.databases.faults import BREAKS, Breaking
from tests.unit.sinks.kinds import ROWS, Died, Runs, query_of


def connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "rows.db")


def asked(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(connect(folder)) as connection:
        found = connection.execute(statement).fetchall()
        connection.commit()
        return found


def sink(folder: Path, **options: Any) -> Any:
    return st.database_sink(partial(connect, folder), "numbers", **{"create": True, **options})


def xs(folder: Path) -> list[int]:
    return [x for (x,) in asked(folder, "SELECT x FROM numbers ORDER BY x")]


@pytest.mark.parametrize("keys", [(), ("x",)], ids=["appended", "by keys"])
def test_it_passes_the_suite_for_sinks(keys: tuple[str, ...], tmp_path: Path) -> None:
    def read(name: str) -> pl.DataFrame:
        if not asked(tmp_path, f"SELECT 1 FROM sqlite_master WHERE name = '{name}'"):
            return pl.DataFrame(schema=SCHEMA)
        return pl.DataFrame({"x": [x for (x,) in asked(tmp_path, f'SELECT x FROM "{name}"')]}, schema={"x": pl.Int64})

    check_sink(lambda name: st.database_sink(partial(connect, tmp_path), name, keys=keys, create=True), read)


def broken_at(breaking: Breaking, keys: tuple[str, ...] = ()) -> st.Query:
    return query_of(st.database_sink(breaking, "numbers", keys=keys, create=True, dialect=SQLITE))


@pytest.mark.parametrize(("late", "error"), BREAKS)
@pytest.mark.parametrize("keys", [(), ("x",)])
def test_rows_are_there_once_whatever_breaks(
    keys: tuple[str, ...], late: bool, error: type[BaseException], tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    counting = Breaking(partial(connect, tmp_path / "whole"), 0, late)
    Runs(tmp_path / "ckpt").run(broken_at(counting, keys))
    assert counting.operations > 20
    for number in range(1, counting.operations + 1, 1 if error is Died and not keys else 3):
        folder = tmp_path / str(number)
        folder.mkdir()
        breaking = Breaking(partial(connect, folder), number, late, error)
        with suppress(st.UnavailableError):
            Runs(folder / "ckpt").run(broken_at(breaking, keys))
        Runs(folder / "ckpt").run(broken_at(breaking, keys))
        assert breaking.operations >= number
        assert xs(folder) == list(range(ROWS))


@pytest.mark.parametrize("late", [False, True])
def test_a_run_connects_again_and_looks_first(late: bool, tmp_path: Path) -> None:
    breaking = Breaking(partial(connect, tmp_path), 25, late)
    run(broken_at(breaking).plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=3, patience=60))
    assert breaking.operations > 25
    assert xs(tmp_path) == list(range(ROWS))


def test_an_upsert_keeps_the_latest_row_of_a_key_and_the_columns_of_others(tmp_path: Path) -> None:
    asked(tmp_path, "CREATE TABLE numbers (key TEXT PRIMARY KEY, x INTEGER, ts TEXT, note TEXT)")
    asked(tmp_path, "INSERT INTO numbers VALUES ('k1', -1, NULL, 'mine'), ('other', -2, NULL, 'mine')")
    run(query_of(sink(tmp_path, keys="key", create=False)).plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=5))
    last = {row["key"]: row["x"] for row in numbers(ROWS).to_dicts()}
    assert dict(asked(tmp_path, "SELECT key, x FROM numbers")) == {**last, "other": -2}
    assert asked(tmp_path, "SELECT key FROM numbers WHERE note = 'mine' ORDER BY key") == [("k1",), ("other",)]


@pytest.mark.parametrize(
    ("table", "keys", "reason"),
    [
        (None, (), "does not exist; create it, or let this sink create it"),
        ("x INTEGER, ts TEXT", (), "has no column 'key'; add it"),
        ("x INTEGER, ts TEXT, key TEXT", ("key",), "cannot be upserted by key"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_at_the_start(
    table: str | None, keys: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    if table is not None:
        asked(tmp_path, f"CREATE TABLE numbers ({table})")
    with pytest.raises(st.SinkError, match=reason):
        Runs(tmp_path / "ckpt").run(query_of(sink(tmp_path, keys=keys, create=False)))
    assert asked(tmp_path, "SELECT name FROM sqlite_master WHERE name = 'springtide_ledger'") == []


def test_rows_of_another_are_refused(tmp_path: Path) -> None:
    Runs(tmp_path / "ckpt").run(query_of(sink(tmp_path)))
    with pytest.raises(st.SinkError, match=r"belongs to the sink out .*'past'.*; .*delete"):
        Runs(tmp_path / "another").run(query_of(sink(tmp_path)))
    assert xs(tmp_path) == list(range(ROWS))


def test_a_ledger_without_its_entry_is_refused_while_nobody_can_tell(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink(tmp_path)), epochs=2)
    entry = asked(tmp_path, "SELECT * FROM springtide_ledger")
    asked(tmp_path, "DELETE FROM springtide_ledger")
    with pytest.raises(st.SinkError, match=r"unknown whether those of epoch 1 .*; restore the entry"):
        runs.run(query_of(sink(tmp_path)))
    with closing(connect(tmp_path)) as connection:
        connection.execute("INSERT INTO springtide_ledger VALUES (?, ?, ?, ?, ?, ?, ?)", entry[0])
        connection.commit()
    runs.run(query_of(sink(tmp_path)))
    assert xs(tmp_path) == list(range(ROWS))


def test_with_keys_a_ledger_without_its_entry_is_begun_anew(tmp_path: Path) -> None:
    """Whether the last epoch is there does not matter: writing the same rows again changes nothing."""
    runs = Runs(tmp_path / "ckpt")
    for epochs in (2, 0, 1, None):
        runs.run(query_of(sink(tmp_path, keys="x")), epochs=epochs)
        there = xs(tmp_path)
        asked(tmp_path, "DELETE FROM springtide_ledger")
    assert there == list(range(ROWS))


@pytest.mark.parametrize("keys", [(), ("x",)])
def test_a_database_that_lost_its_last_transaction_gets_the_epoch_again(keys: tuple[str, ...], tmp_path: Path) -> None:
    """The checkpoint remembers that the rows were published, and the ledger says that they are not there."""
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink(tmp_path, keys=keys)), epochs=1)
    shutil.copyfile(tmp_path / "rows.db", tmp_path / "older.db")
    runs.run(query_of(sink(tmp_path, keys=keys)), epochs=1)
    os.replace(tmp_path / "older.db", tmp_path / "rows.db")
    assert xs(tmp_path) == list(range(3))
    runs.run(query_of(sink(tmp_path, keys=keys)), epochs=0)
    assert xs(tmp_path) == list(range(6))
    runs.run(query_of(sink(tmp_path, keys=keys)))
    assert xs(tmp_path) == list(range(ROWS))


def test_a_first_transaction_that_is_lost_comes_again_too(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink(tmp_path)), epochs=0)
    shutil.copyfile(tmp_path / "rows.db", tmp_path / "older.db")
    runs.run(query_of(sink(tmp_path)), epochs=1)
    os.replace(tmp_path / "older.db", tmp_path / "rows.db")
    runs.run(query_of(sink(tmp_path)))
    assert xs(tmp_path) == list(range(ROWS))


def test_a_database_that_lost_more_is_refused(tmp_path: Path) -> None:
    """Rows of epochs before the last one are nowhere else any more."""
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink(tmp_path)), epochs=1)
    shutil.copyfile(tmp_path / "rows.db", tmp_path / "older.db")
    runs.run(query_of(sink(tmp_path)), epochs=2)
    shutil.copyfile(tmp_path / "rows.db", tmp_path / "newest.db")
    os.replace(tmp_path / "older.db", tmp_path / "rows.db")
    with pytest.raises(st.SinkError, match=r"ends with epoch 0 .*though epoch 2 was published there.*restore"):
        runs.run(query_of(sink(tmp_path)))
    assert xs(tmp_path) == list(range(3))
    os.replace(tmp_path / "newest.db", tmp_path / "rows.db")
    runs.run(query_of(sink(tmp_path)))
    assert xs(tmp_path) == list(range(ROWS))


def test_rows_that_cannot_be_given_again_are_missed(tmp_path: Path) -> None:
    """A checkpoint that was restored has no rows on their way any more."""
    Runs(tmp_path / "old").run(query_of(sink(tmp_path)), epochs=1)
    shutil.copyfile(tmp_path / "rows.db", tmp_path / "older.db")
    Runs(tmp_path / "old").run(query_of(sink(tmp_path)), epochs=1)
    shutil.rmtree(tmp_path / "old" / "outbox")
    os.replace(tmp_path / "older.db", tmp_path / "rows.db")
    with pytest.raises(st.SpringtideError, match="lost rows of epoch 1 for the sink out"):
        Runs(tmp_path / "old").run(query_of(sink(tmp_path)))
    assert xs(tmp_path) == list(range(3))


def test_an_emptied_table_is_begun_anew_as_often_as_one_likes(tmp_path: Path) -> None:
    """What its advice says: empty it, and delete the entry. Rows that were published do not come again."""
    runs = Runs(tmp_path / "ckpt")
    runs.run(query_of(sink(tmp_path)), epochs=2)
    asked(tmp_path, "DELETE FROM numbers")
    asked(tmp_path, "DELETE FROM springtide_ledger")
    for epochs in (0, 0, 1, 0):
        runs.run(query_of(sink(tmp_path)), epochs=epochs)
    assert xs(tmp_path) == list(range(6, 9))


def test_another_table_and_back(tmp_path: Path) -> None:
    """Each has the rows of the time in which it was the sink's."""
    runs, other = Runs(tmp_path / "ckpt"), st.database_sink(partial(connect, tmp_path), "other", create=True)
    for target in (sink(tmp_path), other, other, sink(tmp_path)):
        runs.run(query_of(target), epochs=1)
    assert xs(tmp_path) == [0, 1, 2, 9, 10, 11]
    assert asked(tmp_path, "SELECT x FROM other ORDER BY x") == [(x,) for x in range(3, 9)]


def test_an_entry_that_goes_while_a_run_writes_ends_the_run(tmp_path: Path) -> None:
    def forget() -> None:
        asked(tmp_path, "DELETE FROM springtide_ledger")

    with pytest.raises(st.SinkError, match="has lost its entry in"):
        Runs(tmp_path / "ckpt").run(query_of(sink(tmp_path)), between=forget)


def test_values_come_as_they_are(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "ts": [datetime(2024, 5, 1, 12, tzinfo=UTC)],
            "flag": [True],
            "day": [date(2024, 5, 1)],
            "price": [Decimal("1.50")],
            "raw": [b"\x00\xff"],
            "none": pl.Series([None], dtype=pl.Int64),
            "many": [[1, 2]],
            "text": ['"\n,é'],
        }
    )
    source = st.source("rows", st.memory(frame), ts="ts")
    run(st.Query("values", source.to(sink(tmp_path))).plan(), tmp_path / "ckpt", Options(1))
    (row,) = asked(tmp_path, f"SELECT {', '.join(frame.columns)} FROM numbers")
    expected = ("2024-05-01T12:00:00.000000Z", 1, "2024-05-01", "1.50", b"\x00\xff", None, "[1, 2]", '"\n,é')
    assert row == expected


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pl.Series("y", [1], dtype=pl.UInt64), "'y' is UInt64, for which this database has no type"),
        (pl.Series("y", [1]).cast(pl.Datetime("ns")), "'y' has nanoseconds"),
    ],
)
def test_what_would_be_lost_is_refused(column: pl.Series, reason: str, tmp_path: Path) -> None:
    frame = numbers(1).with_columns(column)
    source = st.source("rows", st.memory(frame, schema={**SCHEMA, "y": column.dtype}), ts="ts")
    with pytest.raises(st.SinkError, match=reason):
        run(st.Query("values", source.to(sink(tmp_path))).plan(), tmp_path / "ckpt", Options(1))


def test_names_that_are_one_to_the_database_are_refused_at_once(tmp_path: Path) -> None:
    query = st.Query("twins", st.source("rows", st.memory(pl.DataFrame({"x": [1], "X": [2]}))).to(sink(tmp_path)))
    with pytest.raises(st.SinkError, match="cannot tell the columns 'x' and 'X' apart; rename one"):
        run(query.plan(), tmp_path / "ckpt", Options(1, patience=600))


def annotated() -> sqlite3.Connection:
    return sqlite3.connect("rows.db")


def unknown():  # type: ignore[no-untyped-def]
    return sqlite3.connect("rows.db")


@pytest.mark.parametrize(
    "options",
    [
        {"connect": annotated},
        {"connect": partial(sqlite3.connect, "rows.db")},
        {"connect": unknown, "dialect": SQLITE},
    ],
    ids=["annotated", "the driver's own", "given"],
)
def test_nan_is_refused_while_nothing_is_committed(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = st.source("rows", st.memory(pl.DataFrame({"y": [1.0, float("nan")]})))
    query = st.Query("nan", rows.to(st.database_sink(table="numbers", create=True, **options)))
    with pytest.raises(st.SinkError, match="column 'y' has NaN, which this database cannot hold; map it to null"):
        run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_nan_that_is_found_too_late_can_become_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks do not know what a function connects to that does not say it; the advice then leads out."""
    monkeypatch.chdir(tmp_path)

    def query(**options: Any) -> st.Query:
        rows = st.source("rows", st.memory(pl.DataFrame({"y": [1.0, float("nan"), 2.0]})))
        return st.Query("nan", rows.to(st.database_sink(unknown, "numbers", create=True, **options), name="out"))

    with pytest.raises(
        st.SinkError,
        match=r"column .* has NaN, which this database cannot hold.*rows that are committed: dialect=replace\(SQLITE, has_n",
    ):
        run(query().plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=2))
    run(query(dialect=replace(SQLITE, has_nan=True)).plan(), tmp_path / "ckpt", Options(1, rows_per_epoch=2))
    assert asked(tmp_path, "SELECT y FROM numbers ORDER BY y") == [(None,), (1.0,), (2.0,)]


def test_rows_without_a_key_are_refused_while_nothing_is_committed(tmp_path: Path) -> None:
    rows = pl.DataFrame({"k": ["a", None], "x": [1, 2]})
    query = st.Query("keys", st.source("rows", st.memory(rows)).to(sink(tmp_path, keys=["x", "k"])))
    with pytest.raises(st.SinkError, match="without a value for the key 'k'; filter"):
        run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_years_that_python_has_none_for_are_refused_where_they_would_pass_through_it() -> None:
    late = pl.DataFrame({"day": pl.Series([2_932_897], dtype=pl.Int32).cast(pl.Date)})
    assert SQLITE.unfit_value(late) is None
    why = Dialect().unfit_value(late)
    assert why is not None
    assert why[0] == "column 'day' has a year before 1 or after 9999, which this database cannot hold"
    assert SQLITE.unfit_value(late.select(pl.col("day").implode())) is not None


def test_nanoseconds_of_a_time_of_day_are_refused_where_python_would_cut_them_off() -> None:
    times = pl.DataFrame({"at": pl.Series([12_001]).cast(pl.Time)})
    assert SQLITE.unfit_value(times) is None
    assert SQLITE.values(times) == [("00:00:00.000012001",)]
    why = Dialect().unfit_value(times)
    assert why is not None
    assert why[0] == "column 'at' has times with nanoseconds, which this database cannot hold"


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pl.Series("y", [2**62]).cast(st.TIME), "a time that is too far away"),
        (pl.Series("y", [2**31 - 1], dtype=pl.Int32).cast(pl.Date), "a time that is too far away"),
        (pl.Series("y", [[1.0, float("nan")]]), "NaN or infinity inside JSON"),
        (pl.Series("y", [{"a": float("inf")}]), "NaN or infinity inside JSON"),
        (pl.Series("y", [[12_001]]).cast(pl.List(pl.Time)), "times with nanoseconds"),
    ],
    ids=["a time in no calendar", "a day in no calendar", "NaN in JSON", "infinity in JSON", "nanoseconds in JSON"],
)
def test_values_that_nobody_can_write_are_refused_while_nothing_is_committed(
    column: pl.Series, reason: str, tmp_path: Path
) -> None:
    query = st.Query("values", st.source("rows", st.memory(pl.DataFrame([column]))).to(sink(tmp_path, dialect=SQLITE)))
    with pytest.raises(st.SinkError, match=f"column 'y' has {reason}, which this database cannot hold"):
        run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_what_no_database_holds_is_refused_even_if_it_is_unknown_which_one_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = st.source("rows", st.memory(pl.DataFrame({"y": pl.Series([2**62]).cast(st.TIME)})))
    query = st.Query("values", rows.to(st.database_sink(unknown, "numbers", create=True)))
    with pytest.raises(
        st.SinkError, match="column 'y' has a year before 1 or after 9999, which this database cannot hold"
    ):
        run(query.plan(), tmp_path / "ckpt", Options(1))
    assert not [*(tmp_path / "ckpt" / MANIFESTS).glob("0*")]


def test_names_may_have_any_characters(tmp_path: Path) -> None:
    rows = pl.DataFrame({name: [1, 2] for name in ["100%", 'the "best"', "it's ?", "Århus {}", "select", "new\nline"]})
    made = st.database_sink(partial(connect, tmp_path), 'all "?"', keys="100%", create=True)
    query = st.Query("names", st.source("rows", st.memory(rows)).to(made, name="out"))
    runs = Runs(tmp_path / "ckpt")
    for epochs in (1, None):
        runs.run(query, epochs=epochs)
    assert asked(tmp_path, 'SELECT * FROM "all ""?"""') == rows.rows()
