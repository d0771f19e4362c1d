"""How many expressways two cores can do (SE-8): the L-rating, in real time.

    ahead    the messages up to the last ten minutes, as fast as it goes: they bring the state there
    live     the last ten minutes at full rate, in real time: all messages of a second come at once when the clock shows it
    judge    every row against the oracle, of the minutes before too, and of the live ones the time from the message to the row in its exactly-once sink

An expressway begins with 15 reports a second and has 1,700 after `--ramp` seconds, which stay so for the ten minutes: three hours together, as in the benchmark. With a shorter ramp the state has fewer accounts;
what was found so has a place of its own, `linear-road-short`. One is made up and has L copies under other
numbers, as SEEP had it. `--input FILE` takes messages that somebody else's generator wrote, of any number of expressways, as often as `--expressways` says; its last ten minutes, or `--live`
seconds, come in real time, and what was found is kept apart from the rating. All runs of the rating are noted in `tried`; one that is worse than the one that was kept, or has less than ten minutes in real time, does not replace it. `--trials` looks for an L that may do: each begins a minute before the end of the ramp with an empty state, and is a minute in real time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import springtide as st
from benchmarks.linear_road.judging import Live, Timed, expected_of, verdict_of
from benchmarks.linear_road.query import BUCKETS, linear_road
from benchmarks.linear_road.source import Recording, Traffic
from benchmarks.linear_road.validator import NAMES
from benchmarks.measure import DATA, keep, kept, result, revision, say, scratch, session

SEED = 1
HIGHEST = 1_700
EXPRESSWAYS = 64
RAMP, LIVE = 10_200, 600
"""Seconds in which the rate of an expressway rises, and of the full rate in real time: three hours together, as in the benchmark."""
WARM = 60
"""So many of the last seconds before real time are left to the live run: it starts its workers with them."""
TRIAL = 60
"""Seconds of a trial before real time, and in it."""
LATE = 5.0
TRIED = ("expressways", "late_answers", "wrong_rows", "p99_ms", "live_s")
SEEP = {"p50_ms": 153, "p95_ms": 700, "p99_ms": 1459, "L": 350, "vms": 50}


@dataclass(frozen=True)
class Case:
    """One L, and where its files are."""

    folder: Path
    recording: Recording
    expressways: int
    begin: int
    ahead: int
    end: int

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def rows_before(self) -> int:
        """How many messages the live run does not get."""
        return int(self.recording.before()[self.ahead - WARM]) * self.expressways

    def start(self, spark: Any, until: int | None, **options: Any) -> Any:
        """Start the query, or go on with it; up to second `until`, or to the end."""
        traffic = Traffic(self.recording, self.expressways, 2, self.begin, self.end, self.ahead, until)
        sinks = {name: Timed(str(self.out / name)) for name in NAMES}
        query = linear_road(st.source("traffic", traffic, ts="ts"), sinks)
        usual = {"instances": 2, "buckets": BUCKETS, "durability": "5s"}
        return query.start(spark, checkpoint=self.folder / "checkpoint", **(usual | options))


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="linear-road")
    parser.add_argument("--expressways", type=int, help="how many copies: 64, or 1 of a file")
    parser.add_argument("--input", type=Path, help="a file in the benchmark's own format")
    parser.add_argument("--phase", choices=["all", "ahead", "live", "judge"], default="all")
    parser.add_argument("--ramp", type=int, default=RAMP)
    parser.add_argument("--live", type=int, default=LIVE)
    parser.add_argument("--for", type=int, dest="seconds", help="end after so many live seconds")
    parser.add_argument("--trials", help="some L, from the greatest on: ends with the first that keeps up")
    given = parser.parse_args(arguments)
    case = _case(given)
    if given.trials:
        _try(case.recording, case.ahead, [int(n) for n in given.trials.split(",")])
        return
    if given.phase in ("all", "ahead"):
        _run_ahead(session(), case)
    if given.phase in ("all", "live"):
        _run_live(session(), case, case.end if given.seconds is None else case.ahead + given.seconds)
    if given.phase in ("all", "judge"):
        judged(case, given.input)


def _case(given: argparse.Namespace) -> Case:
    """Make up the traffic, or take that of a file."""
    place = DATA / "linear-road"
    if given.input is None:
        seconds, copies = given.ramp + given.live, given.expressways or EXPRESSWAYS
        recording = Recording.of(place, SEED, highest=HIGHEST, seconds=seconds, ramp=given.ramp)
        return Case(place / f"{copies}-{given.ramp}-{given.live}", recording, copies, 0, given.ramp, seconds)
    recording, copies = Recording.of_file(place, given.input), given.expressways or 1
    seconds = recording.seconds
    if seconds - given.live < WARM:
        raise SystemExit(
            f"linear-road: {given.input} has {seconds} seconds; give --live {max(1, seconds - WARM)} at most"
        )
    if max(recording.vids, recording.qids) * copies >= 2**31:
        raise SystemExit(f"linear-road: the numbers of {copies} copies of {given.input} do not fit into 32 bits")
    place = place / f"{recording.folder.name}-{copies}-{given.live}"
    return Case(place, recording, copies, 0, seconds - given.live, seconds)


def _try(recording: Recording, ramp: int, expressways: list[int]) -> None:
    spark = session()
    for number in expressways:
        with scratch() as folder:
            case = Case(folder, recording, number, ramp - TRIAL, ramp, ramp + TRIAL)
            run = case.start(spark, None)
            while not run.wait(1.0):
                seen = run.last_snapshot
                if seen is not None and seen.latency and seen.latency.p99 > 2 * LATE and not _is_behind(run, case):
                    run.stop()
            say(f"L = {number}")
            worst = _report(run)
        if worst < LATE:
            break


def _is_behind(run: Any, case: Case) -> bool:
    """Tell whether the run is still at what comes before real time."""
    before = case.recording.before()
    return sum(e["rows"] for e in run.metrics()) < int(before[case.ahead] - before[case.begin]) * case.expressways


def _report(run: Any) -> float:
    """Say what the last minutes of a run were like; return the longest wait of a row."""
    seen = [s for s in run.snapshots() if s.latency is not None]
    free = [s for s in seen if s.backlog > 0]
    waits = [s.latency.p99 for s in seen[len(seen) // 2 :]]
    rate = sum(s.rows for s in free) / max(sum(s.period for s in free), 1e-9)
    epochs = [s.seconds for s in seen]
    say(f"{len(seen)} epochs of {np.median(epochs):.2f} s, with a backlog {rate / 1e3:.0f} k rows/s")
    say(f"waits, p99 of an epoch: median {np.median(waits):.2f}, worst {max(waits):.2f} s")
    busy = {
        name: round(float(np.mean([sum(s.subqueries[name].busy) / s.period for s in seen[len(seen) // 2 :]])), 2)
        for name in seen[-1].subqueries
    }
    say(f"busy instances: {busy}")
    return max(waits)


def _run_ahead(spark: Any, case: Case) -> None:
    shutil.rmtree(case.folder, ignore_errors=True)  # what an earlier run left
    begun = time.perf_counter()
    run = case.start(spark, case.ahead - WARM)
    while sum(e["rows"] for e in run.metrics()) < case.rows_before:
        if run.wait(0.5):
            raise AssertionError("the run ended early")
    seconds = time.perf_counter() - begun
    run.stop()
    say(f"{case.rows_before / 1e6:.0f} M messages in {seconds:.0f} s: {case.rows_before / seconds / 1e3:.0f} k/s")
    (case.folder / "ahead.json").write_text(json.dumps({"rows": case.rows_before, "seconds": seconds}))


def _run_live(spark: Any, case: Case, end: int) -> None:
    run = case.start(spark, None)
    while not run.wait(0.5):
        epochs = run.epochs()
        if epochs and epochs[-1].sources["traffic"].position["second"] >= end:
            run.stop()
    last = run.epochs()[-1].sources["traffic"].position
    (case.folder / "live.json").write_text(json.dumps({"end": last["second"], "began": last["zero"]}))
    _report(run)


def judged(case: Case, file: Path | None = None) -> None:
    """Judge all rows, and keep what was found."""
    say("the oracle")
    live = Live(case.ahead, **json.loads((case.folder / "live.json").read_text()))
    expected = expected_of(case.recording, live.end)
    found = verdict_of(case.out, expected, case.recording, case.expressways, live)
    ahead = json.loads((case.folder / "ahead.json").read_text())
    expressways, fine = case.expressways * case.recording.xways, not (found["late_answers"] or found["wrong_rows"])
    found |= {
        "expressways": expressways,
        "ahead_rows_per_s": ahead["rows"] / ahead["seconds"],
        "ahead_s": case.ahead,
        "live_s": live.end - case.ahead,
    }
    if file is not None:
        result("linear-road-input", input=file.name, in_time_and_right=fine, **found)
        return
    found["L"] = expressways if fine and found["live_s"] >= LIVE else 0
    name = "linear-road" if case.ahead >= RAMP else "linear-road-short"
    before = kept(name)
    tried = [*before.get("tried", []), {name: found[name] for name in TRIED} | {"revision": revision()}]
    if is_better(found, before):
        result(name, **found, seep=SEEP, tried=tried)
    else:
        say(f"L = {found['L']}: the rating that was kept, {before['L']}, stays")
        keep(name, before | {"tried": tried})


def is_better(found: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Tell whether a rating is at least as good as the one that was kept.

    >>> is_better({"L": 0}, {}), is_better({"L": 0}, {"L": 64}), is_better({"L": 96}, {"L": 64})
    (True, False, True)
    """
    return bool(found["L"] >= before.get("L", 0))
