"""Linear Road: the oracle on roads made by hand, one for each rule, and the query beside the oracle (SE-8)."""

from __future__ import annotations

import json
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import springtide as st
from benchmarks import figures
from benchmarks.linear_road import elastic, rating, road
from benchmarks.linear_road.judging import Live, Timed, expected_of, verdict_of
from benchmarks.linear_road.oracle import Answers, Oracle
from benchmarks.linear_road.query import linear_road
from benchmarks.linear_road.source import Recording, Traffic
from benchmarks.linear_road.traffic import Expressway
from benchmarks.linear_road.validator import NAMES, Verdict, judge
from springtide.runtime import inprocess
from springtide.runtime.engine import Engine, Options

ASKS = 1000
"""The number of the question in the roads below."""


def message(time: int, vid: int, kind: int = road.REPORT, **given: int) -> dict[str, int]:
    absent = dict.fromkeys(road.COLUMNS, road.ABSENT)
    usual = {"spd": 30, "xway": 0, "lane": 1, "dir": road.EAST, "seg": 0} if kind == road.REPORT else {}
    row = absent | usual | {"type": kind, "time": time, "vid": vid} | given
    if kind == road.REPORT and "pos" not in given:
        row["pos"] = row["seg"] * road.FEET + vid
    return row


def crowd(cars: int, seg: int, minutes: int = 1, spd: int = 30) -> list[dict[str, int]]:
    """Fill a segment with cars for the first minutes, each in another place every time."""
    return [
        message(time, 10_000 + car, seg=seg, lane=road.ENTRY if time < 30 else 1, spd=spd, pos=seg * road.FEET + time)
        for time in range(0, 60 * minutes, 30)
        for car in range(cars)
    ]


def frame(*rows: dict[str, int]) -> pl.DataFrame:
    return pl.DataFrame(sorted(rows, key=lambda row: row["time"]), schema=road.SCHEMA)


def of(vid: int, rows: list[Any], place: int = 0) -> list[Any]:
    """Give the answers for one car."""
    return [row for row in rows if row[place] == vid]


def balance(time: int, vid: int) -> dict[str, int]:
    return message(time, vid, road.BALANCE, qid=ASKS)


def ask(answers: Answers) -> int:
    return next(b[3] for b in answers.balances if b[0] == ASKS)


SLOW_CAR = [
    message(0, 1, lane=road.ENTRY, seg=6),
    message(30, 1, seg=6),
    message(60, 1, seg=7),  # 60 cars at 30 mph were here in the minute before: 2 · 10²
    message(90, 1, seg=7),
]


def run(
    messages: pl.DataFrame, folder: Path, between: Callable[[Engine], bool] | None = None, **options: Any
) -> dict[str, pl.DataFrame]:
    """Run the query over messages, in this process."""
    time = pl.from_epoch(pl.col("time").cast(pl.Int64) + road.BEGIN, time_unit="s")
    rows = messages.with_columns(ts=time.dt.replace_time_zone("UTC").cast(st.TIME))
    sinks = {name: st.memory_sink() for name in NAMES}
    query = linear_road(st.source("traffic", st.memory(rows), ts="ts"), sinks)
    inprocess.run(query.plan(buckets=16), folder, Options(**options), between=between)
    return {name: sink.rows() for name, sink in sinks.items()}


def test_a_toll_is_charged_when_the_next_segment_is_reached() -> None:
    messages = frame(*crowd(60, seg=7), *SLOW_CAR, message(120, 1, seg=8), balance(119, 1))
    answers = Oracle().run(messages)
    assert of(1, answers.tolls)[1] == (1, 60, 30, 200)
    assert ask(answers) == 0
    assert ask(Oracle().run(frame(*crowd(60, seg=7), *SLOW_CAR, message(120, 1, seg=8), balance(120, 1)))) == 200


def test_who_leaves_in_the_segment_itself_does_not_pay() -> None:
    leaves = message(120, 1, seg=7, lane=road.EXIT)
    back = message(300, 1, seg=50, lane=road.ENTRY)
    assert ask(Oracle().run(frame(*crowd(60, seg=7), *SLOW_CAR, leaves, back, balance(400, 1)))) == 0


def test_who_leaves_in_the_next_segment_pays() -> None:
    leaves = message(120, 1, seg=8, lane=road.EXIT)
    answers = Oracle().run(frame(*crowd(60, seg=7), *SLOW_CAR, leaves, balance(400, 1)))
    assert ask(answers) == 200
    assert 120 not in [toll[1] for toll in of(1, answers.tolls)], "nobody is told a toll on the exit lane"


@pytest.mark.parametrize(
    ("cars", "spd", "toll"), [(50, 30, 0), (51, 30, 2), (60, 39, 200), (60, 40, 0)], ids=["few", "one", "slow", "fast"]
)
def test_few_cars_or_fast_ones_cost_nothing(cars: int, spd: int, toll: int) -> None:
    answers = Oracle().run(frame(*crowd(cars, seg=7, spd=spd), *SLOW_CAR))
    assert of(1, answers.tolls)[1] == (1, 60, spd, toll)


def test_the_average_is_of_cars_and_of_minutes_not_of_reports() -> None:
    one = [message(t, 1, seg=3, spd=10, pos=3 * road.FEET + t) for t in (0, 20, 40)]
    other = [message(5, 2, seg=3, spd=50)]
    later = [message(t, 3, seg=3, spd=60, pos=3 * road.FEET + t) for t in (60, 90)]
    comes = message(120, 4, seg=3, lane=road.ENTRY)
    assert of(4, Oracle().run(frame(*one, *other, *later, comes)).tolls) == [(4, 120, 45, 0)]


def accident(begin: int, reports: int, seg: int = 10) -> list[dict[str, int]]:
    """Let two cars stand at one place: detected with their fourth reports."""
    place = {"seg": seg, "pos": seg * road.FEET + 7, "lane": 2, "spd": 0}
    standing = [message(begin + 30 * i + car, 501 + car, **place) for i in range(reports) for car in (0, 1)]
    end = begin + 30 * reports
    return [*standing, *(message(end + car, 501 + car, seg=seg + 1) for car in (0, 1))]


def test_an_accident_counts_from_the_minute_after_it_was_found_to_the_minute_in_which_it_clears() -> None:
    stands = accident(begin=0, reports=6)  # found at 91 s, in minute 1; the first drives on at 180 s, in minute 3
    cars = [message(t, 600 + t, seg=8, lane=road.ENTRY) for t in (119, 120, 239, 240)]
    answers = Oracle().run(frame(*stands, *cars))
    assert [(a[1], a[2]) for a in answers.alerts] == [(120, 10), (239, 10)]


@pytest.mark.parametrize(
    ("direction", "seg", "told"), [(0, 6, True), (0, 5, False), (0, 11, False), (1, 10, False)], ids=str
)
def test_an_accident_is_told_five_segments_before_it_on_the_same_side(direction: int, seg: int, told: bool) -> None:
    car = message(130, 1, seg=seg, dir=direction, lane=road.ENTRY)
    assert bool(Oracle().run(frame(*accident(0, 6), car)).alerts) is told


def test_an_accident_ahead_makes_driving_free() -> None:
    messages = frame(*crowd(60, seg=9, minutes=2), *accident(0, 6), message(125, 1, seg=9, lane=road.ENTRY))
    answers = Oracle().run(messages)
    assert of(1, answers.tolls) == [(1, 125, 30, 0)]
    assert of(1, answers.alerts) == [(1, 125, 10)]


@pytest.fixture(scope="module")
def busy() -> pl.DataFrame:
    """A road with everything in it: tolls, accidents that clear, exits, cars that come back, questions."""
    traffic = pl.concat([*Expressway(1, highest=20, seconds=420).minutes()])
    other = road.shifted(pl.concat([*Expressway(2, highest=20, seconds=420).minutes()]), 1, 100_000, 100_000)
    assert not traffic.drop("vid", "qid", "xway").equals(other.drop("vid", "qid", "xway"))
    stays = message(120, 1, seg=7, lane=road.EXIT)
    made = [
        *crowd(60, seg=7),
        *SLOW_CAR,
        stays,
        *(row | {"vid": 20 + car} for car in range(12) for row in [*SLOW_CAR, message(120, 1, seg=8)]),
        *(message(121, 20 + car, road.BALANCE, qid=91_000 + car) for car in range(12)),
        *accident(0, 6),
        *accident(210, 5, seg=12),
        *(message(180 + car % 60, 10_000 + car, seg=8 + car % 2, lane=1 + 3 * (car % 2)) for car in range(60)),
        *(message(200, 10_000 + car, road.BALANCE, qid=90_000 + car) for car in range(60)),
    ]
    again = frame(
        *(row | {"xway": 2 if row["xway"] >= 0 else row["xway"], "vid": row["vid"] + 500_000} for row in made)
    )
    return pl.concat([traffic, other, again]).sort("time", maintain_order=True)


@pytest.mark.parametrize("options", [{}, {"instances": 3, "rows_per_epoch": 4_000}], ids=["one", "three"])
def test_the_query_gives_what_the_oracle_gives(busy: pl.DataFrame, tmp_path: Path, options: dict[str, Any]) -> None:
    expected = Oracle().run(busy)
    assert len(expected.alerts) > 10
    assert sum(toll[3] > 0 for toll in expected.tolls) > 0
    assert sum(row[3] > 0 for row in expected.balances) > 10
    verdict = judge(run(busy, tmp_path, **options), expected)
    assert verdict == Verdict(verdict.rows, 0, 0, 0)


def test_instances_that_change_in_mid_run_give_what_the_oracle_gives(busy: pl.DataFrame, tmp_path: Path) -> None:
    """SE-10: everything begins with one instance, and each of the three has more and then fewer."""
    changes = {2: ("cars", 3), 3: ("tolls", 2), 4: ("accounts", 4), 6: ("cars", 1), 7: ("accounts", 2), 8: ("tolls", 1)}
    made: list[dict[str, int]] = []

    def between(engine: Engine) -> bool:
        epoch = engine.manifest.epoch
        made.append({name: owners.instances for name, owners in engine.manifest.maps.items() if name != "traffic"})
        if epoch in changes:
            engine.scale(*changes.pop(epoch))
        return True

    verdict = judge(run(busy, tmp_path, between, instances=1, rows_per_epoch=1_500), Oracle().run(busy))
    assert verdict == Verdict(verdict.rows, 0, 0, 0)
    assert not changes, "all of them were made"
    for cars, tolls, accounts in ((1, 1, 1), (3, 2, 4), (1, 1, 2)):
        assert {"cars": cars, "tolls": tolls, "accounts": accounts} in made


def test_the_validator_finds_what_is_wrong(busy: pl.DataFrame, tmp_path: Path) -> None:
    expected, given = Oracle().run(busy), run(busy, tmp_path)
    tolls = given["tolls"]
    assert judge(given | {"tolls": tolls[1:]}, expected).missing == 1
    assert judge(given | {"tolls": pl.concat([tolls, tolls[:1]])}, expected).unexpected == 1
    wrong = tolls.with_columns(toll=pl.col("toll") + 1)
    assert judge(given | {"tolls": wrong}, expected).missing == tolls.height
    slow = tolls.with_columns(seconds=pl.lit(5.5))
    assert judge(given | {"tolls": slow}, expected).late == tolls.height


def test_messages_are_written_and_read_in_the_format_of_the_benchmark(tmp_path: Path) -> None:
    messages = pl.concat([*Expressway(7, highest=15, seconds=90).minutes()])
    road.write(messages, tmp_path / "cardata.dat")
    assert road.read(tmp_path / "cardata.dat").equals(messages)
    assert (tmp_path / "cardata.dat").read_text().splitlines()[0].count(",") == 14


def test_traffic_follows_the_specification() -> None:
    """A report of each car every 30 s until it leaves, no segment passed over, the rate from 15 a second upwards, the same for a seed."""
    messages = pl.concat([*Expressway(5, highest=60, seconds=600).minutes()])
    assert messages.equals(pl.concat([*Expressway(5, highest=60, seconds=600).minutes()]))
    reports = messages.filter(pl.col("type") == road.REPORT)
    assert reports["seg"].equals((reports["pos"] // road.FEET).alias("seg"))
    trip = (pl.col("lane") == road.ENTRY).cum_sum().over("vid").alias("trip")
    legs = reports.with_columns(trip).group_by("vid", "trip", maintain_order=True)
    steps = legs.agg(
        pl.col("time").diff().drop_nulls(),
        pl.col("seg").diff().abs().max(),
        pl.col("lane").first().alias("comes"),
        (pl.col("lane") == road.EXIT).sum().alias("leaves"),
    )
    assert set(steps["time"].explode(empty_as_null=False).to_list()) == {road.EVERY}
    assert steps["seg"].max() == 1
    assert steps["comes"].unique().to_list() == [road.ENTRY]
    assert steps["leaves"].max() == 1
    per_second = reports.group_by("time").len().sort("time")["len"]
    assert (per_second[0], per_second[-1]) == (15, 60)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording.of(tmp_path_factory.mktemp("roads"), 3, highest=30, seconds=180, ramp=90)


def test_copies_of_an_expressway_are_answered_as_the_one(recording: Recording, tmp_path: Path) -> None:
    source = st.source("traffic", Traffic(recording, 3, 2, 0, 180, 180), ts="ts")
    query = linear_road(source, {name: Timed(str(tmp_path / name)) for name in NAMES})
    inprocess.run(query.plan(buckets=16), tmp_path / "checkpoint", Options(instances=2, rows_per_epoch=3_000))
    expected = expected_of(recording, 180)
    found = verdict_of(tmp_path, expected, recording, 3, Live(0, 180, began=0.0))
    assert found["wrong_rows"] == 0
    assert found["rows"] == 3 * sum(answers.height for answers in expected.values())
    assert found["late_answers"] == found["rows"], "by a clock that began in 1970 all of them are"
    assert verdict_of(tmp_path, expected, recording, 2, Live(180, 180, 0.0))["wrong_rows"] == found["rows"] // 3


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Somebody else's messages: two expressways, in lines of 15 integers, with a question about a travel time and some that came out of order."""
    ways = [pl.concat([*Expressway(seed, highest=25, seconds=150, ramp=90).minutes()]) for seed in (11, 12)]
    travel = message(70, 5, road.EXPENDITURE) | {"type": 4, "xway": 0, "qid": 999_999, "s_init": 3, "s_end": 9}
    messages = pl.concat(
        [ways[0], road.shifted(ways[1], 1, 50_000, 50_000), pl.DataFrame([travel], schema=road.SCHEMA)]
    )
    road.write(messages, tmp_path / "cardata.dat")
    return tmp_path / "cardata.dat"


def test_messages_of_somebody_else_are_answered_and_judged(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-8: a file, the query, the oracle; with copies of both of its expressways."""
    given = Recording.of_file(tmp_path / "roads", file)
    messages = given.messages()
    assert (given.xways, given.seconds) == (2, 150)
    assert given == Recording.of_file(tmp_path / "roads", file), "read once"
    assert (given.vids, given.qids) == (messages["vid"].max() + 1, messages["qid"].max() + 1)
    assert 999_999 not in messages["qid"]
    place = tmp_path / "case"
    source = st.source("traffic", Traffic(given, 2, 2, 0, 150, 150), ts="ts")
    query = linear_road(source, {name: Timed(str(place / "out" / name)) for name in NAMES})
    inprocess.run(query.plan(buckets=16), place / "checkpoint", Options(instances=2, rows_per_epoch=3_000))
    (place / "live.json").write_text(json.dumps({"end": 150, "began": time.time()}))
    (place / "ahead.json").write_text(json.dumps({"rows": 1, "seconds": 1}))
    found: dict[str, Any] = {}
    monkeypatch.setattr(rating, "result", lambda name, **figures: found.update(figures, name=name))
    rating.judged(rating.Case(place, given, 2, 0, 150, 150), file)
    assert found["name"] == "linear-road-input", "the rating is of our own traffic"
    assert (found["wrong_rows"], found["expressways"]) == (0, 4)
    assert found["rows"] == 2 * sum(answers.height for answers in expected_of(given, 150).values()) > 500
    assert found["rows_by_answer"]["expenditures"] > 2, "they differ from one expressway to the other"


def test_cars_that_report_too_often_are_refused(tmp_path: Path) -> None:
    road.write(frame(message(0, 1), message(30, 1), message(50, 1)), tmp_path / "often.dat")
    with pytest.raises(ValueError, match="car 1 reports again after 20 s"):
        Recording.of_file(tmp_path / "roads", tmp_path / "often.dat")


def test_a_rating_that_fails_does_not_replace_a_better_one(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was tried is noted beside it."""
    found = {"late_answers": 0, "wrong_rows": 0, "p99_ms": 1_000.0}
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "write", lambda: None)
    monkeypatch.setattr(rating, "expected_of", lambda *_: {})
    monkeypatch.setattr(rating, "verdict_of", lambda *_: dict(found))
    (tmp_path / "ahead.json").write_text(json.dumps({"rows": 1, "seconds": 1}))

    def judged(expressways: int, late: int = 0, seconds: int = 600) -> Any:
        found["late_answers"] = late
        (tmp_path / "live.json").write_text(json.dumps({"end": rating.RAMP + seconds, "began": 0.0}))
        rating.judged(rating.Case(tmp_path, recording, expressways, 0, rating.RAMP, rating.RAMP + 600))
        return json.loads((tmp_path / "linear-road.json").read_text())

    assert judged(128, late=1)["L"] == 0
    best = judged(64)
    assert (best["L"], len(best["tried"])) == (64, 2)
    for after in (judged(96, late=7), judged(256, seconds=60), judged(32)):
        assert {**after, "tried": best["tried"]} == best
    assert [tried["expressways"] for tried in after["tried"]] == [128, 64, 96, 256, 32]
    assert judged(96)["L"] == 96
    assert not (tmp_path / "linear-road-short.json").exists(), "that is for shorter ramps"


def test_allocations_by_hand_are_numbers_for_every_part() -> None:
    """SE-10."""
    assert elastic.allocation_of("2") == {"traffic": 2, "cars": 2, "tolls": 2, "accounts": 2}
    assert elastic.allocation_of("cars=3,accounts=2") == {"traffic": 1, "cars": 3, "tolls": 1, "accounts": 2}
    for wrong in ("cars", "wheels=2", "cars=0", ""):
        with pytest.raises(ArgumentTypeError, match="cars=2"):
            elastic.allocation_of(wrong)


def test_messages_come_when_the_clock_shows_their_second(recording: Recording) -> None:
    now = [1000.0]
    traffic = Traffic(recording, 2, 2, begin=10, end=180, ahead=60, clock=lambda: now[0])
    first = traffic.take(None, 10**9, "ts")
    assert first.position == {"second": 60, "zero": None}, "up to then they come as fast as they are taken"
    second = traffic.take(first.position, 10**9, "ts")
    assert second.position == {"second": 61, "zero": 1000.0}
    assert traffic.take(second.position, 10**9, "ts").position == second.position
    now[0] = 1003.5
    third = traffic.take(second.position, 10**9, "ts")
    assert third.position["second"] == 64
    assert [part.arrived for part in third.slices] == [(1001.0, 1003.0)] * 2
    assert traffic.take(second.position, 1, "ts").position["second"] == 62, "one second at least"
    assert [len(traffic.read(part).rows.collect()) for part in third.slices] == [part.rows for part in third.slices]
    now[0] = 1500.0
    assert traffic.take(third.position, 10**9, "ts").ended


def test_a_run_ahead_ends_before_the_live_part(recording: Recording) -> None:
    ahead = Traffic(recording, 1, 1, begin=0, end=180, ahead=60, until=50)
    assert ahead.take(None, 10**9, "ts").position == {"second": 50, "zero": None}
    assert not ahead.take({"second": 50, "zero": None}, 10**9, "ts").slices
