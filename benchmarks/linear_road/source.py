"""The messages of L expressways as a source: kept as one, multiplied when they are read, at the pace of a clock where that is wanted.

The one is made up, or comes from a file in the benchmark's own format, which may have several expressways: then all of them are multiplied together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import springtide as st
from benchmarks.linear_road import road
from benchmarks.linear_road.traffic import Expressway
from springtide.connectors import Read, Slice, Source, Take

ROWS, SECONDS = "messages.arrow", "seconds.arrow"
"""The messages of one expressway in the order of their times, and for each second, and for the one after the last, how many there were before it."""


USED = tuple(name for name in road.COLUMNS if name not in ("s_init", "s_end", "dow", "tod"))


KINDS = (road.REPORT, road.BALANCE, road.EXPENDITURE)


@dataclass(frozen=True)
class Recording:
    """The messages of one expressway, or of all those of somebody's file, in files."""

    folder: Path
    vids: int
    """More than the number of any of its cars: the distance between two copies' numbers."""
    qids: int
    xways: int = 1
    """How many expressways it has."""

    @staticmethod
    def of(folder: Path, seed: int, *, highest: int, seconds: int, ramp: int) -> Recording:
        """Make it, or find it where it was made before."""
        found = folder / f"seed-{seed}-{highest}-{seconds}-{ramp}"
        if not (found / SECONDS).exists():
            found.mkdir(parents=True, exist_ok=True)
            way = Expressway(seed, highest=highest, seconds=seconds, ramp=ramp)
            _write(found, pl.concat([*way.minutes()]), seconds, {"vids": way.vids, "qids": way.qids, "xways": 1})
        return Recording._found(found)

    @staticmethod
    def of_file(folder: Path, file: Path) -> Recording:
        """Take the messages of a file in the benchmark's own format; what it asks about travel times is left out."""
        is_now = file.stat()
        found = folder / f"{file.stem}-{is_now.st_size}-{is_now.st_mtime_ns}"
        if not (found / SECONDS).exists():
            messages = road.read(file).filter(pl.col("type").is_in(KINDS)).sort("time", maintain_order=True)
            _check(file, messages)
            found.mkdir(parents=True, exist_ok=True)
            highest = {name: _most(messages[name]) + 1 for name in ("time", "vid", "qid", "xway")}
            _write(found, messages, highest.pop("time"), {f"{name}s": value for name, value in highest.items()})
        return Recording._found(found)

    @staticmethod
    def _found(folder: Path) -> Recording:
        last = pl.read_ipc(folder / SECONDS).row(0, named=True)
        return Recording(folder, last["vids"], last["qids"], last.get("xways", 1))

    @property
    def seconds(self) -> int:
        """How long it is."""
        return len(self.before()) - 1

    def before(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Give for each second how many messages there are before it."""
        return pl.read_ipc(self.folder / SECONDS)["before"].to_numpy()

    def messages(self) -> pl.DataFrame:
        """Give all messages."""
        return pl.read_ipc(self.folder / ROWS)


def _write(folder: Path, messages: pl.DataFrame, seconds: int, numbers: dict[str, int]) -> None:
    messages.write_ipc(folder / ROWS, compression="uncompressed")
    before = np.searchsorted(messages["time"].to_numpy(), np.arange(seconds + 1))
    pl.DataFrame({"before": before, **numbers}).write_ipc(folder / ".partial", compression="uncompressed")
    (folder / ".partial").rename(folder / SECONDS)


def _most(numbers: pl.Series) -> int:
    return int(numbers.max() or 0)  # type: ignore[call-overload]


def _check(file: Path, messages: pl.DataFrame) -> None:
    """Refuse what the query cannot do: it looks for a car among those that reported 30 seconds before."""
    reports = messages.filter(pl.col("type") == road.REPORT)
    if reports.is_empty():
        raise ValueError(f"{file} has no position reports; give a file with lines of 15 integers, type 0 among them")
    again = reports.select("vid", since=pl.col("time").diff().over("vid")).filter(pl.col("since") < road.EVERY)
    if again.height:
        vid, since = again.row(0)
        raise ValueError(f"in {file} car {vid} reports again after {since} s; cars have to report every {road.EVERY} s")


@dataclass(frozen=True, eq=False)
class Traffic(Source):
    """Messages of `expressways` copies of a recording, with the same traffic under other numbers, as SEEP had them. Each physical stream has some of them.

    Up to second `ahead` messages come as fast as they are taken. Then all messages of a second are there when the clock shows it: those of second `ahead`
    when they are first asked for. A position is the next second, and when second `ahead` was.
    """

    recording: Recording
    expressways: int
    streams: int
    begin: int
    end: int
    ahead: int
    until: int | None = None
    """Messages from this second on are not there yet, and will not come in this run."""
    clock: Callable[[], float] = field(default=time.time)

    def schema(self) -> pl.Schema:
        """Names and types: the benchmark's columns but those of travel time estimation, and the time of day."""
        return pl.Schema({**{name: road.SCHEMA[name] for name in USED}, "ts": st.TIME})

    def describe(self) -> str:
        """Say how many expressways."""
        return f"{self.expressways} expressways, seconds {self.begin} to {self.end}"

    def take(self, position: Any, limit: int, ts: str | None) -> Take:
        """Take whole seconds: those that are due, at most about `limit` messages, but one second at least."""
        second, zero = (position["second"], position["zero"]) if position else (self.begin, None)
        before = _before(self.recording)
        if second >= self.ahead and zero is None and self.until is None:
            zero = self.clock()
        due = self.ahead if zero is None else min(self.end, self.ahead + 1 + int(self.clock() - zero))
        due = due if self.until is None else min(due, self.until)
        most = int(np.searchsorted(before, before[second] + limit // self.expressways, side="right")) - 1
        upto = max(min(second + 1, due), min(due, most))
        names = [f"{number:02d}" for number in range(self.streams)]
        arrived = None if zero is None else tuple(zero + s - self.ahead for s in (second, upto - 1))
        slices = tuple(
            Slice(
                name,
                int(before[second] - before[self.begin]) * self._ways(number),
                int(before[upto] - before[second]) * self._ways(number),
                [number, second, upto],
                arrived=arrived,  # type: ignore[arg-type]
            )
            for number, name in enumerate(names)
            if before[upto] > before[second]
        )
        ended = upto == self.end
        now = st.END_OF_TIME if ended else (road.BEGIN + upto) * 1_000_000
        backlog = int(before[due] - before[upto]) * self.expressways
        return Take(
            slices, {"second": upto, "zero": zero}, dict.fromkeys(names, now), tuple(names), ended, max(0, backlog)
        )

    def read(self, part: Slice) -> Read:
        """Read the messages of some seconds, and shift their numbers for every expressway of the stream."""
        number, first, stop = part.data
        before = _before(self.recording)
        rows = _messages(self.recording)[int(before[first]) : int(before[stop])]
        ways = np.arange(number, self.expressways, self.streams, dtype=np.int32)
        copies = {name: np.repeat(column.to_numpy(), ways.size) for name, column in zip(USED, rows, strict=True)}
        way = np.tile(ways, rows.height)
        copies["vid"] += way * self.recording.vids
        copies["qid"] = np.where(copies["qid"] == road.ABSENT, road.ABSENT, copies["qid"] + way * self.recording.qids)
        copies["xway"] = np.where(
            copies["xway"] == road.ABSENT, road.ABSENT, copies["xway"] + way * self.recording.xways
        )
        copies["ts"] = (copies["time"].astype(np.int64) + road.BEGIN) * 1_000_000
        return Read(pl.LazyFrame(copies, schema=self.schema()))

    def _ways(self, number: int) -> int:
        return len(range(number, self.expressways, self.streams))


@lru_cache(1)
def _before(recording: Recording) -> np.ndarray[Any, np.dtype[np.int64]]:
    return recording.before()


@lru_cache(1)
def _messages(recording: Recording) -> pl.DataFrame:
    return recording.messages().select(USED).rechunk()
