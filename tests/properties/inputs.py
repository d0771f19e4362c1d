"""Random input: sources of one or more physical streams, with rows of every type and everything that can be wrong with them.

All times of a case are multiples of its unit (a microsecond to a day), so that ties, window edges and rows that are just late
are frequent.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

import springtide as st
from springtide.query.connectors import Rows
from springtide.testing import END, FAIL, PAUSE, idle

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000_000
UNITS = (1, 7, 1_000, 1_000_000, 1_000_000, 60_000_000, 3_600_000_000, DAY)
"""Microseconds."""
ROWS = 60
"""At most so many rows in a case."""

SCHEMA = {
    "k": pl.String(),
    "g": pl.Int64(),
    "i": pl.Int64(),
    "u": pl.UInt8(),
    "big": pl.Int64(),
    "f": pl.Float64(),
    "b": pl.Boolean(),
    "d": pl.Duration("us"),
    "t": st.TIME,
    "m": pl.Decimal(12, 2),
    "l": pl.List(pl.Int64()),
    "w": pl.String(),
}
LARGE = "big"
"""Columns with numbers near the ends of 64 bits; their sums may not fit."""
WRONG: dict[str, Any] = {
    "k": 7,
    "g": "x",
    "i": 1.5,
    "u": 300,
    "big": True,
    "f": "1",
    "b": 1,
    "d": 5,
    "m": 1,
    "l": 3,
    "w": 2.0,
}
"""Values that do not fit."""


class Inputs:
    """The time scale and the columns of a case, and the sources made of them."""

    def __init__(self, random: Random, folder: Path) -> None:
        """Choose; files will be written to the folder."""
        r = self.random = random
        self.folder = folder
        self.unit: int = r.choice(UNITS)
        self.base = r.choice([0, 0, -20, 1_700_000_000_000_000 // self.unit]) * self.unit
        self.rough = r.random() < 0.4
        """Floats have all their bits, some are very large or very small."""
        self.schema = {n: SCHEMA[n] for n in ["k", "i", *r.sample([*SCHEMA], r.randint(1, 4))]}
        self.rows_left: int = r.choice([5, 8, 8, 12, 20, 35, ROWS])

    def source(self, name: str) -> st.Stream:
        """Make a source with time, of rows in memory or in files."""
        r = self.random
        positions = r.random() < 0.85
        disorder = r.choice([0, 0, 1, 2, 5]) * self.unit
        ts, dtype, write = self.time_column()
        columns = [*self.schema.items(), (ts, dtype)]
        r.shuffle(columns)
        streams: dict[str, Rows] = {}
        framed = r.random() < 0.2
        for stream in r.sample(["0", "1", "a", "b"], r.choice([1, 1, 2, 3])):
            rows = self.rows(ts, write, disorder, late=positions, plain=framed)
            streams[stream] = pl.DataFrame(rows, schema=dict(columns)) if framed else rows
        if framed and len(streams) == 1 and positions:
            files = self.files(name, next(iter(streams.values())))
            return st.source(
                name, st.parquet(files, schema=dict(columns)), ts=ts, max_disorder=timedelta(microseconds=disorder)
            )
        given: Any = streams if len(streams) > 1 or r.random() < 0.5 else next(iter(streams.values()))
        memory = st.memory(given, schema=dict(columns), positions=positions)
        return st.source(name, memory, ts=ts, max_disorder=timedelta(microseconds=disorder))

    def untimed(self) -> st.Stream:
        """Make a source without time: it takes stateless steps only, and nothing in it is late."""
        made = [
            {"k": self.value("k"), "i": self.value("i")} if self.random.random() < 0.8 else PAUSE
            for _ in range(self.random.randint(0, 9))
        ]
        plain = st.source("plain", st.memory(made, schema={n: SCHEMA[n] for n in ("k", "i")}))
        return plain.filter(pl.col("i") > 0).union(plain).map(j=pl.col("i") + 1)

    def files(self, name: str, rows: Any) -> Path:
        """Write rows to some Parquet files, in row groups whose greatest time the engine sees without reading them."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        size = self.random.choice([3, 7, 100])
        for start in range(0, rows.height, size):
            rows[start : start + size].write_parquet(
                folder / f"{start:03d}.parquet", row_group_size=self.random.choice([2, 5])
            )
        return folder

    def time_column(self) -> tuple[str, Any, Callable[[int], Any]]:
        """Choose how the source writes its event time: name, type, and a value for microseconds."""

        def moment(micros: int) -> datetime:
            return EPOCH + timedelta(microseconds=micros)

        def text(micros: int) -> str:
            east = timezone(timedelta(hours=2))
            form = self.random.randrange(4)
            if form == 0:
                return moment(micros).isoformat()
            if form == 1:
                return moment(micros).replace(tzinfo=None).isoformat(" ", timespec="microseconds")
            return (
                moment(micros).astimezone(east).isoformat() if form == 2 else f"{moment(micros):%Y-%m-%dT%H:%M:%S.%fZ}"
            )

        kinds: list[tuple[str, Any, Callable[[int], Any]]] = [
            ("ts", st.TIME, moment),
            ("ts", st.TIME, moment),
            ("when", pl.Datetime("us"), lambda micros: moment(micros).replace(tzinfo=None)),
            ("when", pl.Int64(), int),
            ("ts", pl.String(), text),
        ]
        if self.unit % 1_000 == 0:
            kinds.append(("when", pl.Datetime("ms", "UTC"), moment))
        if self.unit == DAY:
            kinds.append(("day", pl.Date(), lambda micros: date(1970, 1, 1) + timedelta(days=micros // DAY)))
        return self.random.choice(kinds)

    def rows(self, ts: str, write: Callable[[int], Any], disorder: int, *, late: bool, plain: bool) -> list[Any]:
        """Write rows of one physical stream; unless they are plain, with misfits and markers among them."""
        r, rows = self.random, list[Any]()
        now = self.base + r.randint(0, 5) * self.unit
        pause, fail, dummy = r.choice([0, 0.05, 0.15]), r.choice([0, 0, 0, 0.03]), r.choice([0, 0, 0.05])
        for _ in range(min(self.rows_left, r.randint(0, 20))):
            self.rows_left -= 1
            now += r.choice([0, 0, 1, 1, 1, 2, 3, 10, 40 if r.random() < 0.1 else 0]) * self.unit
            behind = r.randint(0, disorder // self.unit) * self.unit
            if late and r.random() < 0.1:
                behind = disorder + r.randint(1, 8) * self.unit
            row = {name: self.value(name) for name in self.schema if r.random() < 0.97} | {ts: write(now - behind)}
            if r.random() < 0.06:
                row = row | {ts: None} if plain else self.misfit(row, ts)
            rows.append(row)
            if plain:
                continue
            if r.random() < pause:
                rows.append(PAUSE)
            if r.random() < fail:
                rows.append(FAIL)
            if r.random() < dummy:
                rows.append(idle(to=timedelta(microseconds=now + r.randint(-2, 8) * self.unit)))
        if r.random() < 0.3 and not plain:
            rows.append(END)
        return rows

    def misfit(self, row: dict[str, Any], ts: str) -> dict[str, Any]:
        """Make a row that is to be rejected."""
        match self.random.randrange(4):
            case 0:
                return row | {ts: None}
            case 1:
                return row | {"extra": 1}
            case 2:
                return row | {ts: "yesterday"}
        wrong = [n for n in self.schema if n in WRONG]
        name = self.random.choice(wrong)
        return row | {name: WRONG[name]}

    def value(self, column: str) -> Any:
        r = self.random
        if r.random() < 0.08:
            return None
        match column:
            case "k":
                return r.choice("ABCDEFGH"[: r.choice([2, 8])])
            case "g":
                return r.randint(0, 3)
            case "i":
                return r.randint(-9, 9)
            case "u":
                return r.choice([0, 1, 255])
            case "big":
                return r.choice([2**62, -(2**62), 2**63 - 1, -(2**63), r.randint(-3, 3)])
            case "f":
                special = r.choice([float("nan"), 0.0, -0.0, 0.5, float("inf"), -float("inf")])
                wide = r.uniform(-9, 9) * 2.0 ** r.choice([0, 0, 0, 0, 60, -60, 1020, -1060])
                return special if r.random() < 0.15 else wide if self.rough else r.randint(-40, 40) / 4
            case "b":
                return r.random() < 0.5
            case "d":
                return timedelta(microseconds=r.choice([0, 1, -1, 7, r.randint(-(10**10), 10**10)]))
            case "t":
                return EPOCH + timedelta(microseconds=r.choice([0, 1, r.randint(-(10**12), 10**12)]))
            case "m":
                return Decimal(r.choice([0, 1, -1, r.randint(-(10**9), 10**9)])).scaleb(-2)
            case "l":
                return [r.choice([None, 1, 2, 3]) for _ in range(r.choice([0, 1, 2, 3]))]
        return r.choice(["", "a", "b a", "ä b", "c c c"])
