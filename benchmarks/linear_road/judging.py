"""The answers of many expressways with the same traffic, judged: each as the oracle answers the one, and each in time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.linear_road import road
from benchmarks.linear_road.oracle import Oracle
from benchmarks.linear_road.source import Recording
from benchmarks.linear_road.validator import NAMES, compare, frames
from springtide.connectors import Owner, Publication, Writer
from springtide.sinks.parquet import ParquetSink


@dataclass(frozen=True)
class Timed(ParquetSink):
    """A Parquet sink that writes down when the rows of an epoch could be seen."""

    def open(self, owner: Owner) -> Writer:
        """Open it as usual."""
        return _TimedWriter(super().open(owner), Path(f"{self.path}.times"))


class _TimedWriter(Writer):
    def __init__(self, writer: Writer, times: Path) -> None:
        self._writer, self._times = writer, times

    def publish(self, publication: Publication) -> None:
        self._writer.publish(publication)
        with open(self._times, "a") as file:
            file.write(json.dumps([publication.epoch, time.time()]) + "\n")

    def has(self, epoch: int, commit: str) -> bool:
        return self._writer.has(epoch, commit)

    def committed(self, epoch: int) -> None:
        self._writer.committed(epoch)

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True)
class Live:
    """Which seconds came in real time, and when."""

    first: int
    end: int
    began: float
    """The time of day at which the first one came."""


def expected_of(recording: Recording, end: int) -> dict[str, pl.DataFrame]:
    """Let the oracle answer the messages of the one expressway, up to second `end`."""
    return frames(Oracle().run(recording.messages().filter(pl.col("time") < end)))


def _expenditures(asked: pl.DataFrame, recording: Recording, way: int) -> pl.DataFrame:
    """Let the oracle answer the questions for past days of another copy, whose cars have spent something else; numbers are those of the one."""
    shifted = road.shifted(asked, way, recording.vids, recording.qids, recording.xways)
    answers = frames(Oracle().run(shifted))["expenditures"]
    return answers.with_columns(pl.col("vid") - way * recording.vids, pl.col("qid") - way * recording.qids)


def verdict_of(
    out: Path, expected: Mapping[str, pl.DataFrame], recording: Recording, expressways: int, live: Live
) -> dict[str, Any]:
    """Judge all answers of all expressways, and say how long those of the live seconds took."""
    answers = {name: _answers(out, name, live, recording) for name in NAMES}
    waits = pl.concat([rows["seconds"].drop_nulls() for rows in answers.values()])
    by_way = {
        name: {int(way[0]): part for way, part in rows.partition_by("way", as_dict=True).items()}  # type: ignore[call-overload]
        for name, rows in answers.items()
    }
    asked = recording.messages().filter((pl.col("type") == road.EXPENDITURE) & (pl.col("time") < live.end))
    found = []
    for way in {*range(expressways), *(way for parts in by_way.values() for way in parts)}:
        wanted = {**expected, "expenditures": _expenditures(asked, recording, way)}
        if way >= expressways:
            wanted = {name: rows.clear() for name, rows in wanted.items()}
        found.append(compare({name: parts.get(way, answers[name].clear()) for name, parts in by_way.items()}, wanted))
    points = {f"p{q}_ms": float(waits.quantile(q / 100, "nearest") or 0) * 1000 for q in (50, 95, 99)}
    return {
        "late_answers": sum(v.late for v in found),
        "wrong_rows": sum(v.missing + v.unexpected for v in found),
        "rows": sum(v.rows for v in found),
        "live_rows": waits.len(),
        **points,
        "worst_ms": float(waits.max() or 0) * 1000,  # type: ignore[arg-type]
        "rows_by_answer": {name: rows.height for name, rows in answers.items()},
    }


def _answers(out: Path, name: str, live: Live, recording: Recording) -> pl.DataFrame:
    """Read the rows of a sink, with the expressway that each belongs to, its numbers as the oracle has them, and how long it took if it was live."""
    times = dict(json.loads(line) for line in Path(f"{out / name}.times").read_text().splitlines())
    files = sorted((out / name).glob("part-*.parquet"))
    seen_at = [times[int(file.name.split("-")[1])] for file in files]
    none = pl.DataFrame(schema={**dict.fromkeys(NAMES[name], pl.Int32), "seen": pl.Float64})
    parts = [pl.read_parquet(f).with_columns(seen=pl.lit(at)) for f, at in zip(files, seen_at, strict=True)]
    rows = pl.concat(parts) if parts else none
    is_live = pl.col("time").is_between(live.first, live.end, closed="left")
    way = pl.col("vid") // recording.vids
    shifted = {"vid": pl.col("vid") - way * recording.vids}
    if "qid" in rows.columns:
        shifted["qid"] = pl.col("qid") - way * recording.qids
    seconds = pl.when(is_live).then(pl.col("seen") - (pl.col("time") - live.first + live.began))
    return rows.with_columns(seconds=seconds.cast(pl.Float32), way=way, **shifted).drop("seen", "ts", strict=False)
