"""The kind `poison`: whatever rows a source of any kind is given, each is accepted, late or rejected with a reason, and no run dies.

The engine gives the rows and the reasons of the reference, for any cut into epochs; rows read = accepted + late + rejected.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import springtide as st
from springtide.connectors import Read, Slice
from springtide.exchange.gate import BEGINNING
from springtide.query.connectors import SourceConnector
from springtide.query.steps import Source
from springtide.query.types import FIRST_TIME, LAST_TIME
from springtide.runtime.engine import Options
from springtide.runtime.inprocess import run
from springtide.sources.spark import SparkSource, tuples
from springtide.stateless.ingest import ingest

END = 2**63
INTEGERS = [0, 1, -1, 5, 127, -129, 2**31, 2**53 + 1, END - 1, -END, 2**62]
TIMES = [0, 1, -1, 10**12, FIRST_TIME, FIRST_TIME - 1, LAST_TIME, LAST_TIME + 1, END - 1, -END, END // 1000]
TEXTS = [
    "",
    "x",
    "ü",
    "\0",
    "\ufeff",
    "\ufffd",
    "a,b",
    'say "hi"',
    "\x85",
    "\u2028",
    "😀",
    "null",
    "x" * 300,
    "'",
    "\\",
]
WHENS = [
    "1970-01-01T00:00:01",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2024-02-30",
    "soon",
    "",
    "٢٠٢٤",
]
FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, 0.1]
DECIMALS = [Decimal("0"), Decimal("-1.50"), Decimal("9" * 30), Decimal("1E-30"), Decimal("1E+500"), Decimal("NaN")]
MOMENTS = [
    datetime(1970, 1, 1), datetime.min, datetime.max, datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))),
]  # fmt: skip

TYPES: dict[str, tuple[pl.DataType, list[Any]]] = {
    "i8": (pl.Int8(), INTEGERS),
    "i64": (pl.Int64(), INTEGERS),
    "u64": (pl.UInt64(), [*INTEGERS, 2**64 - 1]),
    "f32": (pl.Float32(), FLOATS),
    "f64": (pl.Float64(), FLOATS),
    "text": (pl.String(), TEXTS),
    "bytes": (pl.Binary(), [b"", b"\xff\xfe", b"x"]),
    "bool": (pl.Boolean(), [True, False]),
    "date": (pl.Date(), [date.min, date.max, date(2024, 2, 29)]),
    "day": (pl.Time(), [time.min, time.max]),
    "span": (pl.Duration("us"), [timedelta(0), timedelta.max, timedelta.min, timedelta(days=-1)]),
    "time": (st.TIME, MOMENTS),
    "plain": (pl.Datetime("ns"), MOMENTS),
    "money": (pl.Decimal(20, 2), DECIMALS),
    "list": (pl.List(pl.Int16()), [[], [1, None], [2**20], [[1]]]),
    "pair": (pl.Struct({"a": pl.Int8(), "b": pl.String()}), [{}, {"a": 1}, {"a": 1, "b": "x"}, {"c": 1}]),
}
ODD = [
    None,
    object(),
    "\ud800",
    10**5000,
    1.5,
    True,
    b"\xff",
    [],
    {},
    {"x": {1: 2}},
    {1},
    timedelta.max,
    Decimal("sNaN"),
]
"""What may stand in any column of a row of Python."""


def run_case(seed: int, folder: Path) -> str | None:
    """Let a source of some kind have some poison."""
    chance = random.Random(f"poison {seed}")
    return chance.choice([_python_rows, _frames, _csv, _json, _parquet, _spark])(chance, folder)


# ── in memory ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _some_columns(chance: random.Random, only: list[str] | None = None) -> dict[str, pl.DataType]:
    names = chance.sample(only or list(TYPES), chance.randint(1, 4))
    return {"i": pl.Int64(), **{name: TYPES[name][0] for name in names}}


def _python_rows(chance: random.Random, folder: Path) -> str | None:
    columns = _some_columns(chance)
    ts: pl.DataType = chance.choice(
        [st.TIME, pl.Int64(), pl.Datetime("ms"), pl.Datetime("ns", "Asia/Tokyo"), pl.String()]
    )
    times = {pl.Int64(): TIMES, pl.String(): WHENS}.get(ts, MOMENTS)
    rows: list[dict[Any, Any]] = []
    for i in range(chance.randrange(12)):
        row: dict[Any, Any] = {"i": i, "ts": chance.choice([*times, None] if chance.random() < 0.7 else ODD)}
        for name in columns:
            if name != "i" and chance.random() < 0.9:
                row[name] = chance.choice(ODD if chance.random() < 0.1 else TYPES[name][1])
        if chance.random() < 0.05:
            row[chance.choice(["\ud800", 5, ("a",), "extra"])] = 1
        rows.append(row)
    return _compared(chance, folder, st.memory(rows, schema={**columns, "ts": ts}), len(rows))


def _series(chance: random.Random, name: str, dtype: pl.DataType, height: int) -> pl.Series:
    """Make a column of values of a type, as far away as the type goes."""
    if dtype.is_temporal() and dtype != pl.Time:
        values: list[Any] = [chance.choice([*TIMES, None]) for _ in range(height)]
        if dtype == pl.Date:
            values = [None if v is None else max(-(2**31), min(2**31 - 1, v)) for v in values]
            return pl.Series(name, values, dtype=pl.Int32).cast(dtype)
        return pl.Series(name, values, dtype=pl.Int64).cast(dtype)
    fitting = []
    for value in [*(TIMES if name == "ts" else TYPES[name][1]), None]:
        try:
            fitting.append(pl.Series([value], dtype=dtype, strict=True)[0])
        except (
            TypeError,
            ValueError,
            OverflowError,
            RuntimeError,
            pl.exceptions.PolarsError,
            pl.exceptions.PanicException,
        ):
            continue
    return pl.Series(name, [chance.choice(fitting) for _ in range(height)], dtype=dtype)


def _frame(chance: random.Random, columns: dict[str, pl.DataType], ts: pl.DataType, height: int) -> pl.DataFrame:
    made = [_series(chance, name, dtype, height) for name, dtype in columns.items() if name != "i"]
    if ts == pl.String():
        made.append(pl.Series("ts", [chance.choice([*WHENS, None]) for _ in range(height)], dtype=ts))
    else:
        made.append(_series(chance, "ts", ts, height))
    return pl.DataFrame([pl.Series("i", range(height), dtype=pl.Int64), *made])


def _ts_type(chance: random.Random) -> pl.DataType:
    units: list[Any] = ["ms", "us", "ns"]
    return chance.choice(
        [st.TIME, pl.Int64(), pl.String(), pl.Date(), pl.Datetime(chance.choice(units), chance.choice([None, "UTC"]))]
    )


def _frames(chance: random.Random, folder: Path) -> str | None:
    frame = _frame(chance, _some_columns(chance), _ts_type(chance), chance.randrange(12))
    return _compared(chance, folder, st.memory(frame), frame.height)


# ── in files ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_LINE_TYPES = ["i8", "i64", "u64", "f32", "f64", "text", "bool", "date", "day", "time", "plain", "money"]
_CELLS = [
    "1",
    "-1",
    "300",
    "1e999",
    "nan",
    "true",
    '"a,b"',
    '"open',
    'mid"dle',
    "\x00",
    "ü",
    "9" * 400,
    "2024-02-29",
    "",
    " 1",
]
_VALUES = [
    "1", "-1", "300", "1e999", "-1e999", "1.0", "NaN", "true", '"x"', '"\\ud800"', '"\\u0000"', "[1]", "{}", "null",
    "9" * 400, "9" * 5000, "[" * 2000 + "]" * 2000, '"2024-02-29"', '"9999-12-31T23:59:59-14:00"', "-0", "01", "1 2", '"',
]  # fmt: skip


def _lines(chance: random.Random, path: Path, make: Callable[[int], str], head: str = "") -> int:
    """Write some lines, some of them broken; give their number."""
    lines = [make(i).encode() for i in range(chance.randrange(10))]
    for i in range(len(lines)):
        if chance.random() < 0.15:
            bad = chance.choice(
                [b"\xff", b"\xc3", b"\r", b"\x00", b"\xed\xa0\x80", b'"', b"\xef\xbb\xbf", b"{", b"\x1a"]
            )
            at = chance.randint(0, len(lines[i]))
            lines[i] = lines[i][:at] + bad + lines[i][at:]
    end = b"\n" if lines and chance.random() < 0.7 else b""
    path.write_bytes(chance.choice([b"", b"\xef\xbb\xbf"]) + head.encode() + b"\n".join(lines) + end)
    return len(lines) - (bool(lines) and not end and lines[-1] == b"")


def _csv(chance: random.Random, folder: Path) -> str | None:
    columns = _some_columns(chance, _LINE_TYPES)
    ts = chance.choice([st.TIME, pl.Int64(), pl.String()])

    def line(i: int) -> str:
        cells = [chance.choice(_CELLS) for _ in range(len(columns) - 1 + (chance.random() < 0.1))]
        return ",".join([str(i), *cells, chance.choice([*WHENS, *map(str, TIMES)])])

    (folder / "in").mkdir()
    rows = sum(_lines(chance, folder / "in" / f"{n}.csv", line) for n in range(chance.randint(1, 2)))
    return _compared(chance, folder, st.csv(folder / "in", schema={**columns, "ts": ts}, header=False), rows)


def _json(chance: random.Random, folder: Path) -> str | None:
    columns = _some_columns(chance, [*_LINE_TYPES, "list", "pair"])
    if isinstance(columns.get("pair"), pl.Struct) and chance.random() < 0.5:
        columns["pair"] = pl.Struct({"a": pl.Int8(), "b": pl.String()})
    ts = chance.choice([st.TIME, pl.Int64(), pl.String()])

    def line(i: int) -> str:
        cells = [f'"{name}": {chance.choice(_VALUES)}' for name in columns if name != "i" and chance.random() < 0.8]
        when = chance.choice([*map(json.dumps, WHENS), *map(str, TIMES)])
        extra = ['"i": 1', '"other": 2', ""] if chance.random() < 0.1 else []
        return "{" + ", ".join([f'"i": {i}', f'"ts": {when}', *cells, *extra[: chance.randint(0, 3)]]) + "}"

    (folder / "in").mkdir()
    rows = sum(_lines(chance, folder / "in" / f"{n}.json", line) for n in range(chance.randint(1, 2)))
    return _compared(chance, folder, st.json(folder / "in", schema={**columns, "ts": ts}), rows)


def _parquet(chance: random.Random, folder: Path) -> str | None:
    columns, ts, rows = _some_columns(chance), _ts_type(chance), 0
    (folder / "in").mkdir()
    for n in range(chance.randint(1, 3)):
        frame = _frame(chance, columns, ts, chance.randrange(8)).with_columns(pl.col("i") + rows)
        if chance.random() < 0.15:  # of another schema
            frame = frame.with_columns(pl.col("ts").cast(pl.Int64, strict=False).alias("ts"), extra=pl.lit(1))
        frame.write_parquet(folder / "in" / f"{n}.parquet", row_group_size=chance.choice([1, 3, 100]))
        rows += frame.height
    return _compared(chance, folder, st.parquet(folder / "in", schema={**columns, "ts": ts}), rows)


# ── what Spark reads ──────────────────────────────────────────────────────────────────────────────────────────────────


def _spark(chance: random.Random, folder: Path) -> str | None:
    """Rows as Spark's JVM sends them: it does not look whether a text is one."""
    height = chance.randrange(1, 9)
    texts = [chance.choice([b"x", b"\xff", "ü".encode(), b"\xed\xa0\x80", None, b""]) for _ in range(height)]
    times = [chance.choice([*TIMES, None]) for _ in range(height)]
    arrays = [pa.array(times, pa.timestamp("us", "UTC")), pa.array(texts, pa.binary()).view(pa.string())]
    arrays.append(pa.ListArray.from_arrays(pa.array(range(height + 1), pa.int32()), arrays[1]))
    batch = pa.StructArray.from_arrays(arrays, ["ts", "x", "l"])
    columns = pl.Schema({"ts": st.TIME, "x": pl.String(), "l": pl.List(pl.String())})
    connector = SparkSource(None, columns, (), None)  # type: ignore[arg-type]
    step = st.source("s", connector, ts="ts", max_disorder="10000w").step
    assert isinstance(step, Source)
    frame = tuples(connector, batch)
    got = ingest(step, "s", Slice("0", 0, height, None), Read(frame.lazy()), BEGINNING, ordered=True, origin=0)
    accepted = got.accepted.collect()
    late = 0 if got.late is None else got.late.height
    rejected = 0 if got.rejected is None else got.rejected.height
    if accepted.height + late + rejected != height:
        return f"{height} rows came, {accepted.height} were accepted, {late} late, {rejected} rejected"
    path = folder / "out.parquet"
    accepted.write_parquet(path)
    pq.read_table(path).validate(full=True)
    sound = [_is_text(x) and t is not None and FIRST_TIME <= t <= LAST_TIME for x, t in zip(texts, times, strict=True)]
    return (
        None if accepted.height + late == sum(sound) else f"{sum(sound)} rows are sound, not {accepted.height + late}"
    )


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or isinstance(data.decode(), str)
    except UnicodeDecodeError:
        return False


def _shown(frame: pl.DataFrame) -> str:
    """Write rows, however far away their times are."""
    return str(frame.select(pl.all().to_physical()).rows())


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by all that is in them: lines of two files may have the same number."""
    texts = [pl.col(name).to_physical().map_elements(repr, pl.String, skip_nulls=False) for name in frame.columns]
    return frame.sort(texts) if frame.height > 1 else frame


# ── the engine beside the reference ───────────────────────────────────────────────────────────────────────────────────


def _compared(chance: random.Random, folder: Path, connector: SourceConnector, rows: int) -> str | None:
    disorder = chance.choice(["0s", "1s", "10000w", "520000w"])
    source = st.source("s", connector, ts="ts", max_disorder=disorder)
    counts = source.aggregate(window=st.tumbling(chance.choice(["1s", "30000w"])), n=st.count(), name="counts")
    sinks = {name: st.memory_sink() for name in ("out", "counts", "late", "rejected")}
    streams = {"out": source, "counts": counts, "late": source.late, "rejected": source.rejected}
    query = st.Query("poison", *(stream.to(sinks[name], name=f"to_{name}") for name, stream in streams.items()))
    expected = query.run_reference()
    engine = run(
        query.plan(buckets=2), folder / "ckpt", Options(chance.randint(1, 2), rows_per_epoch=chance.choice([2, 5, 100]))
    )
    state = engine.manifest.sources["s"]
    if state.accepted + state.late + state.rejected != rows:
        return f"{rows} rows came; {state.accepted} accepted, {state.late} late, {state.rejected} rejected"
    for name in ("out", "counts", "late"):
        got, wanted = _in_order(sinks[name].rows()), _in_order(expected.rows(f"to_{name}"))
        if not got.equals(wanted):
            return f"{name}: {_shown(got)} is not {_shown(wanted)}"
    reasons = [
        frame.select("position", "reason").sort("position").rows()
        for frame in (sinks["rejected"].rows(), expected.rows("to_rejected"))
    ]
    return None if reasons[0] == reasons[1] else f"rejected: {reasons[0]} is not {reasons[1]}"
