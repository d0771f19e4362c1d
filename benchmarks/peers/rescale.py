"""Rescaling under load, beside Flink's adaptive scheduler: how long nothing comes out, how much later rows come, and how many are wrong.

    make bench NAME=rescale
    make bench NAME=rescale ARGS="--callers 260000 --per-second 4400 --interval-ms 5000"

Heavy callers, windows of an hour every minute, with a pane of each caller and minute in state: 18,000 callers make 10⁶ rows, and 260,000 make 10⁷, about 1 GB on Flink's heap; how large the
state of each side was is in its `state_bytes`. Each size has its own place in the results, and a side that is not asked for keeps what was found for it at that size. A file with a minute of calls comes every second and closes one window; who reads
the output notes when the last of that window's rows can be seen in an exactly-once Parquet folder. From 1 to 2 instances and back to 1, both on the same two cores. Flink runs the program that was
written for this query by hand (see `peers`), with state on the heap and in RocksDB, checkpoints twice a second (`--interval-ms`; a large heap takes longer to write), and the adaptive scheduler, told over REST; its waiting times are all set to nothing.

Each side runs `--rounds` times: three times with up to 18,000 callers, else once. The numbers of a change are medians of the rounds, late windows and wrong rows are of all rounds together.
`extra_ms` is the latency of the latest window after a change, less the median of those before; `gap_ms` is the longest time between two outputs then, less the longest one before (at least the second between two files).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

import springtide as st
from benchmarks.elastic.reconfigure import CALLERS, FULL, PER_SECOND, different
from benchmarks.latency.windows import reading, times
from benchmarks.measure import DATA, kept, result, revision, say, scratch, session, summary
from benchmarks.peers import flink
from benchmarks.peers.queries import QUERIES
from benchmarks.peers.rows import uniform

SIDES = {"springtide": "", "flink-heap": "hashmap", "flink-rocksdb": "rocksdb"}
QUERY = QUERIES["heavy-callers"]
SCHEMA = {"src": pl.String, "start": pl.Int64, "end": pl.Int64, "ts": st.TIME}
EVERY = 1.0
INTERVAL_MS = 500
SETTLED, AFTER = 12, 14
"""Files before each change, and after it."""
CHANGES = ("1 → 2", "2 → 1")
FILLED_AFTER = 900
"""Seconds after which a side should have read the first hour."""
Figures = dict[str, Any]


def main(*args: str) -> None:
    """Run all sides, or some, with a state of one size."""
    parser = argparse.ArgumentParser(prog="rescale")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--callers", type=int, default=CALLERS)
    parser.add_argument("--per-second", type=int, default=PER_SECOND, help="calls a second of event time")
    parser.add_argument("--interval-ms", type=int, default=INTERVAL_MS, help="between two of Flink's checkpoints")
    parser.add_argument("--rounds", type=int, help="of each side: 3 with a small state, else 1")
    given = parser.parse_args(args)
    if any(SIDES[side] for side in given.sides) and (reason := flink.absent()):
        raise SystemExit(f"rescale: {reason}; or leave Flink out with --sides springtide")
    load = Load.of(FULL + SETTLED + 2 * AFTER, given.callers, given.per_second)
    rounds = given.rounds or (3 if given.callers <= CALLERS else 1)
    found: dict[str, list[Figures]] = {side: [] for side in given.sides}
    for _ in range(rounds):
        for side in given.sides:
            found[side].append(measured(side, load, given.interval_ms))
            say(f"{side}: {found[side][-1]}")
            _keep(load, given.interval_ms, {name: together(runs) for name, runs in found.items() if runs})


def stops(rounds: int) -> dict[str, list[float]]:
    """Say how many milliseconds nothing comes out of Flink when it goes from 1 to 2, for each kind of state, in each round."""
    load = Load.of(FULL + SETTLED + AFTER, CALLERS, PER_SECOND)
    found: dict[str, list[float]] = {side: [] for side in SIDES if SIDES[side]}
    for _ in range(rounds):
        for side, gaps in found.items():
            run = measured(side, load)
            if run["wrong_rows"]:
                raise AssertionError(f"{side}: {run['wrong_rows']} rows are wrong")
            gaps.append(run["1 → 2"]["gap_ms"])
            say(f"{side}: {gaps[-1]} ms without output")
    return found


@dataclass(frozen=True)
class Load:
    """The calls, and the rows that they must give."""

    callers: int
    per_second: int
    files: Path
    right: pl.DataFrame

    @staticmethod
    def of(minutes: int, callers: int, per_second: int) -> Load:
        """Make a file for each minute."""
        files = _calls(minutes, callers, per_second)
        return Load(callers, per_second, files, uniform(QUERY, QUERY.polars(files).collect()))

    @property
    def first(self) -> list[Path]:
        """The files of the first hour, which are there when a side begins: who lists a folder while files come may find a later one before an earlier one."""
        return sorted(self.files.glob("*.parquet"))[:FULL]

    @property
    def others(self) -> list[Path]:
        """The files that come one by one."""
        return sorted(self.files.glob("*.parquet"))[FULL:]

    @property
    def panes(self) -> int:
        """How many rows of state there are: a pane for each caller of each minute of an hour."""
        return sum(pl.scan_parquet(file).select(pl.col("src").n_unique()).collect().item() for file in self.first)


def measured(side: str, load: Load, interval_ms: int = INTERVAL_MS) -> Figures:
    """Run a side once."""
    with scratch() as place:
        (place / "in").mkdir()
        (place / "out").mkdir()
        placed = [_come(file, place) for file in load.first]
        with reading(place / "out", place / "seen"):
            run = _Springtide(place) if side == "springtide" else _Flink(place, SIDES[side], interval_ms)
            try:
                changed = _fed(load.others, place, run, placed)
            finally:
                run.stop()
        found = _figures(place, placed, changed)
        return found | {"wrong_rows": _wrong(place / "out", load.right), "state_bytes": run.state_bytes}


def together(runs: Sequence[Figures]) -> Figures:
    """Put the rounds of a side together: medians, with what was found in each round, and what is wrong in any.

    >>> change = {"extra_ms": 40, "gap_ms": 7, "late_windows": 1}
    >>> run = {"usual_ms": 90, "wrong_rows": 2, "state_bytes": 5, "1 → 2": change}
    >>> found = together([run, run | {"1 → 2": change | {"gap_ms": 9}}])
    >>> found["wrong_rows"], found["1 → 2"]["gap_ms"], found["1 → 2"]["late_windows"]
    (4, 8, 2)
    """
    found: Figures = {
        "rounds": len(runs),
        "usual_ms": round(statistics.median(run["usual_ms"] for run in runs)),
        "wrong_rows": sum(run["wrong_rows"] for run in runs),
        "state_bytes": max(run["state_bytes"] for run in runs),
    }
    for change in (name for name in CHANGES if name in runs[0]):
        each = {name: [run[change][name] for run in runs] for name in ("extra_ms", "gap_ms")}
        found[change] = {name: round(statistics.median(values)) for name, values in each.items()}
        found[change]["late_windows"] = sum(run[change]["late_windows"] for run in runs)
        found[change] |= {f"{name}_of_each": values for name, values in each.items()}
    return found


def _keep(load: Load, interval_ms: int, found: dict[str, Figures]) -> None:
    """Keep what was found for this size, with what is known of others."""
    sizes = kept("rescale").get("sizes", {})
    name = f"{load.callers}-{load.per_second}"
    sides = {side: run | {"revision": revision()} for side, run in found.items()}
    sizes[name] = {
        "callers": load.callers,
        "per_second": load.per_second,
        "interval_ms": interval_ms,
        "panes": load.panes,
        "rows_compared": load.right.height,
        "sides": sizes.get(name, {}).get("sides", {}) | sides,
    }
    result("rescale", flink=flink.VERSION, sizes=dict(sorted(sizes.items(), key=lambda size: size[1]["panes"])))


# ── the sides ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Springtide:
    """Our side: a run that is told to have more instances."""

    def __init__(self, place: Path) -> None:
        self._spark = session()
        files = st.parquet(place / "in", schema=SCHEMA, follow=True)
        self._run = QUERY.springtide(files, st.parquet_sink(place / "out")).start(
            self._spark,
            checkpoint=place / "checkpoint",
            instances={"calls": 1, "windows": 1},
            trigger="50 milliseconds",
        )
        self.state_bytes = 0

    def scale(self, instances: int) -> None:
        """Say how many there are to be."""
        self._run.scale("windows", instances)

    def stop(self) -> None:
        """End it."""
        self.state_bytes = self._run.last_snapshot.subqueries["windows"].state_bytes
        self._run.stop()
        self._spark.stop()


class _Flink:
    """Flink's side: a JVM with one job, and its REST interface."""

    def __init__(self, place: Path, state: str, interval_ms: int) -> None:
        self._checkpoints = place / "checkpoints"
        self._process = subprocess.Popen(
            flink.command(flink.compiled(), "peers.Rescale"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        task = {"query": "heavy-callers", "state": state, "in": str(place / "in"), "out": str(place / "out")}
        task |= {"checkpoints": str(self._checkpoints), "interval_ms": interval_ms}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(task), file=self._process.stdin, flush=True)
        answer = next(line for line in self._process.stdout if line.startswith("{"))
        told = json.loads(answer)
        self._job = f"{told['rest']}/jobs/{told['job']}"
        self.state_bytes = 0
        self.scale(1)

    def scale(self, instances: int) -> None:
        """Say how many there are to be of everything but the source."""
        vertices = self._asked("")["vertices"]
        bounds = {
            v["id"]: {"parallelism": {"lowerBound": 1, "upperBound": 1 if "Source" in v["name"] else instances}}
            for v in vertices
        }
        self._asked("/resource-requirements", bounds)

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        try:
            last = self._asked("/checkpoints")["latest"]["completed"] or {}
            self.state_bytes = last.get("full_size", last.get("state_size", 0))
            self._process.stdin.close()
            self._process.wait(60)
        finally:
            self._process.kill()

    def _asked(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "PUT"
        request = urllib.request.Request(
            self._job + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        until = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.loads(answer.read() or b"{}")
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)


# ── feeding and reading ───────────────────────────────────────────────────────────────────────────────────────────────


def _come(file: Path, place: Path) -> float:
    """Let a file come, and say when it came."""
    part = place / f"{file.name}.part"
    os.link(file, part)
    now = time.time()
    os.utime(part)
    part.rename(place / "in" / file.name)
    return now


def _fed(files: list[Path], place: Path, run: Any, placed: list[float]) -> list[float]:
    """Let a file come every second once the first hour has been read; note when each came, and say when instances were changed."""
    changed: list[float] = []
    limit = time.monotonic() + FILLED_AFTER
    while not _published(place / "out", len(placed) - 1):
        if time.monotonic() > limit:
            raise TimeoutError(f"the windows of the first hour have not come out within {FILLED_AFTER} s")
        time.sleep(0.2)
    begun = time.monotonic()
    for i, file in enumerate(files):
        time.sleep(max(0.0, begun + i * EVERY - time.monotonic()))
        placed.append(_come(file, place))
        if i in (SETTLED, SETTLED + AFTER):
            instances = 2 if i == SETTLED else 1
            changed.append(time.time())
            threading.Thread(target=run.scale, args=(instances,)).start()
    time.sleep(4 * EVERY)
    return changed


def _published(out: Path, windows: int) -> bool:
    starts = (pl.read_parquet(file, columns=["window_start"], glob=False).to_series() for file in _files(out))
    return len({start for found in starts for start in found.unique()}) >= windows


def _files(out: Path) -> list[Path]:
    return [f for f in sorted(out.iterdir()) if f.is_file() and f.stat().st_size and f.name[0] not in "._"]


def _calls(minutes: int, callers: int, per_second: int) -> Path:
    """Write a file for each minute."""
    folder = DATA / f"rescale-{callers}-{per_second}-{minutes}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        make = st.call_records(callers=callers, per_second=per_second)
        millis = (pl.col("start", "end").cast(pl.Datetime("us", "UTC")).dt.epoch("ms"),)
        for i in range(minutes):
            calls = make(0, i * 60 * per_second, 60 * per_second).with_columns(*millis).select(list(SCHEMA))
            calls.write_parquet(folder / f"{i:04d}.parquet")
        (folder / "done").touch()
    return folder


def _read(file: Path) -> pl.DataFrame:
    return uniform(QUERY, pl.read_parquet(file, glob=False))


def _wrong(out: Path, right: pl.DataFrame) -> int:
    """Count the rows that are not right, or are missing, of all windows that were published by all means: those of all files but the last two."""
    given = pl.concat([_read(file) for file in _files(out)])
    last = right["window_start"].max() - timedelta(minutes=59 + 2)  # type: ignore[operator]
    upto, rounded = pl.col("window_start") <= last, pl.col("avg_duration").round(6)
    given, right = (rows.filter(upto).with_columns(rounded) for rows in (given, right))
    return different(given, right)


def _figures(place: Path, placed: list[float], changed: list[float]) -> Figures:
    """Say when the last rows of each window could be seen, after the file that closed it had come."""
    seen = times(place / "seen")
    last: dict[Any, float] = {}
    for file in _files(place / "out"):
        for start in _read(file)["window_start"].unique():
            last[start] = max(last.get(start, 0.0), seen[file.name])
    ends = sorted(last)
    first = ends[0]
    latencies: dict[int, float] = {}
    for start in ends:
        number = round((start - first) / timedelta(minutes=1)) + 1  # the file whose calls are after its end
        if FULL <= number < len(placed):
            latencies[number] = last[start] - placed[number]
    before = [v for n, v in latencies.items() if FULL + 2 <= n < FULL + SETTLED]
    usual = statistics.median(before)
    found: Figures = {"usual_ms": round(usual * 1000), "latency_ms": summary([v * 1000 for v in before])}
    outputs = sorted(placed[n] + v for n, v in latencies.items() if FULL + 2 <= n < FULL + SETTLED)
    longest = max([EVERY, *(b - a for a, b in pairwise(outputs))])
    for k, at in enumerate(changed):
        near = {n: v for n, v in latencies.items() if at - EVERY <= placed[n] < at + AFTER * EVERY - 1}
        outputs = sorted(placed[n] + v for n, v in near.items())
        gaps = [b - a for a, b in pairwise(outputs)]
        found[CHANGES[k]] = {
            "extra_ms": round((max(near.values()) - usual) * 1000),
            "gap_ms": round((max(gaps) - longest) * 1000),
            "late_windows": sum(v > usual + EVERY for v in near.values()),
        }
    return found
