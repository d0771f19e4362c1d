"""Linear Road as a query: windows as far as they go, and an operator of its own where tolls are decided (SEEP, figure 5).

traffic ─┬─ reports ─┬─ cars ── segments ─┬─ lavs ─┐
         │           │                    └────────┤
         │           ├─ stops ─────────────────────┤
         │           └─ pairs ── crossings ────────┴─ tolls ─┬─→ tolls, alerts
         │                 └──── exits ───────── charges ←───┘
         ├─ questions for balances ─────────── accounts ←─ charges ─→ balances
         └─ questions for past days ─→ expenditures
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

import springtide as st
from benchmarks.linear_road import road

MINUTE = 60
_I32, _I64 = pl.Int32(), pl.Int64()
_SEGMENT = ("xway", "dir", "seg")

CROSSING, STOP, LAV, CARS = 0, 1, 2, 3
"""What the toll calculator hears of."""
NEWS = {
    "what": _I32,
    "xway": _I32,
    "dir": _I32,
    "seg": _I32,
    "time": _I32,
    "vid": _I32,
    "entered": pl.Boolean(),
    "place": _I64,
    "value": _I64,
}
ENTERS, CROSSES, EXITS_FURTHER, EXITS_HERE = 0, 1, 2, 3
"""What a car does, as far as its account is concerned: coming and leaving in the same segment cost nothing."""


@dataclass
class Known:
    """What the toll calculator knows of the expressways of a bucket."""

    statistics: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=NEWS))
    """LAVs and numbers of cars of the last minute."""
    standing: dict[int, dict[int, int]] = field(default_factory=dict)
    """Place → cars that are stopped there → when they last said so."""
    accidents: list[dict[str, Any]] = field(default_factory=list)
    """place, xway, dir, seg, found (its minute), cleared (its minute, or None)."""

    def stop(self, news: pl.DataFrame) -> None:
        """Take note of cars that stand."""
        for row in news.iter_rows(named=True):
            self.leave(before=row["time"])
            cars = self.standing.setdefault(row["place"], {})
            cars[row["vid"]] = row["time"]
            is_open = any(a["place"] == row["place"] and a["cleared"] is None for a in self.accidents)
            if len(cars) > 1 and not is_open:
                where = {name: row[name] for name in ("place", *_SEGMENT)}
                self.accidents.append(where | {"found": row["time"] // MINUTE, "cleared": None})

    def leave(self, before: int) -> None:
        """Let the cars go that did not say again that they stand: they drove on with the report that was due then."""
        gone = sorted(
            (last + road.EVERY, place, vid)
            for place, cars in self.standing.items()
            for vid, last in cars.items()
            if last + road.EVERY < before
        )
        for time, place, vid in gone:
            cars = self.standing[place]
            del cars[vid]
            if not cars:
                del self.standing[place]
            for accident in self.accidents:
                if accident["place"] == place and accident["cleared"] is None and len(cars) < 2:
                    accident["cleared"] = time // MINUTE

    def blocked(self, minute: int) -> pl.DataFrame:
        """Give the segments from which an accident is ahead in a minute, with the segment of the nearest one."""
        self.leave(before=minute * MINUTE)
        self.accidents = [a for a in self.accidents if a["cleared"] is None or a["cleared"] >= minute]
        rows = [
            {"xway": a["xway"], "dir": a["dir"], "seg": seg, "accident": a["seg"], "distance": distance}
            for a in self.accidents
            if a["found"] < minute
            for distance in range(road.AHEAD)
            for seg in [a["seg"] - distance if a["dir"] == road.EAST else a["seg"] + distance]
        ]
        schema = {"xway": _I32, "dir": _I32, "seg": _I32, "accident": _I32, "distance": _I32}
        found = pl.DataFrame(rows, schema=schema).sort("distance").unique(_SEGMENT, keep="first", maintain_order=True)
        return found.drop("distance")


class Tolls(st.BucketOperator[Known]):
    """Tells every car that crosses into a segment what it owes. What is told in a minute follows from the minutes before it."""

    output: ClassVar[Mapping[str, Any]] = {
        "ts": st.TIME,
        "vid": _I32,
        "time": _I32,
        "entered": pl.Boolean(),
        "lav": _I32,
        "toll": _I32,
        "accident": _I32,
    }

    def init(self) -> Known:
        """Begin with an empty road."""
        return Known()

    def process(self, state: Known, tuples: pl.DataFrame, ready_ts: int) -> pl.DataFrame | None:
        """Answer the cars of each minute with what is known of the minutes before."""
        told = []
        for (minute,), news in tuples.group_by(pl.col("time") // MINUTE, maintain_order=True):
            crossing = news.filter(pl.col("what") == CROSSING)
            if crossing.height:
                told.append(_answers(state, crossing, minute))
            state.stop(news.filter(pl.col("what") == STOP))
            fresh = news.filter(pl.col("what").is_in([LAV, CARS])).select(*NEWS)
            if fresh.height:
                before = state.statistics.filter(pl.col("time") // MINUTE == minute)
                state.statistics = pl.concat([before, fresh])
        return pl.concat(told).select(*self.output) if told else None

    def serialize(self, state: Known) -> pl.DataFrame:
        """Write the statistics as columns, and the few cars that stand as JSON."""
        rest = json.dumps(
            {
                "standing": [[p, v, t] for p, c in state.standing.items() for v, t in c.items()],
                "accidents": state.accidents,
            }
        )
        return pl.DataFrame({"statistics": [state.statistics.to_struct()], "rest": [rest]})

    def deserialize(self, data: pl.DataFrame) -> Known:
        """Read what `serialize` wrote."""
        rest = json.loads(data["rest"][0])
        standing: dict[int, dict[int, int]] = {}
        for place, vid, time in rest["standing"]:
            standing.setdefault(place, {})[vid] = time
        return Known(data["statistics"][0].struct.unnest().select(*NEWS), standing, rest["accidents"])


def _answers(known: Known, crossing: pl.DataFrame, minute: int) -> pl.DataFrame:
    """Tell each car its LAV, its toll and whether there is an accident ahead."""
    last = known.statistics.filter(pl.col("time") // MINUTE == minute - 1)
    lavs = last.filter(pl.col("what") == LAV).select(*_SEGMENT, lav="value")
    cars = last.filter(pl.col("what") == CARS).select(*_SEGMENT, cars="value")
    told = crossing
    for table in (lavs, cars, known.blocked(minute)):
        told = told.join(table, on=_SEGMENT, how="left", maintain_order="left")
    lav, over = pl.col("lav").fill_null(0), pl.col("cars").fill_null(0) - road.BUSY
    owes = pl.col("accident").is_null() & (lav < road.FLOWING) & (over > 0)
    return told.with_columns(lav=lav.cast(_I32), toll=pl.when(owes).then(2 * over * over).otherwise(0).cast(_I32))


class Accounts(st.KeyOperator):
    """What each car was charged so far; answers questions."""

    state: ClassVar[Mapping[str, Any]] = {"balance": _I64}
    output: ClassVar[Mapping[str, Any]] = {"ts": st.TIME, "qid": _I32, "time": _I32, "vid": _I32, "balance": _I64}

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """Begin with nothing."""
        return {"balance": 0}

    def process(
        self, key: tuple[Any, ...], state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int
    ) -> list[dict[str, Any]]:
        """Add charges, answer questions."""
        rows = []
        for ts, qid, time, charge in tuples.select("ts", "qid", "time", "charge").iter_rows():
            state["balance"] += charge
            if qid != road.ABSENT:
                rows.append({"ts": ts, "qid": qid, "time": time, "vid": key[0], "balance": state["balance"]})
        return rows


def linear_road(traffic: st.Stream, sinks: Mapping[str, Any]) -> st.Query:
    """Make the query over messages with the columns of the benchmark; it has the sinks tolls, alerts, balances, expenditures."""
    reports = traffic.filter(pl.col("type") == road.REPORT, name="reports")
    pairs = reports.aggregate(
        by="vid",
        window=st.last_n(2, every=1),
        before=st.first(pl.concat_list("xway", "dir", "seg")),
        now=st.last(pl.concat_list("xway", "dir", "seg")),
        xway=st.last("xway"),
        dir=st.last("dir"),
        seg=st.last("seg"),
        lane=st.last("lane"),
        time=st.last("time"),
        name="pairs",
    )
    moved = pl.col("before") != pl.col("now")
    tolls = st.union(_crossings(reports, pairs, moved), _stops(reports), *_statistics(reports)).operator(
        Tolls(), keys=["xway", "dir"], name="tolls"
    )
    charges = _charges(tolls, pairs, moved)
    questions = traffic.filter(pl.col("type") == road.BALANCE).select("vid", "qid", "time").map(charge=pl.lit(0, _I64))
    balances = st.union(charges, questions.select("vid", "qid", "time", "charge")).operator(
        Accounts(), keys="vid", name="accounts"
    )
    past = traffic.filter(pl.col("type") == road.EXPENDITURE).map(
        spent=road.spent(pl.col("vid"), pl.col("day"), pl.col("xway"))
    )
    return st.Query(
        "linear-road",
        tolls.select("vid", "time", "lav", "toll").to(sinks["tolls"], name="toll-notifications"),
        tolls.filter(pl.col("accident").is_not_null())
        .select("vid", "time", "accident")
        .to(sinks["alerts"], name="accident-alerts"),
        balances.select("qid", "time", "vid", "balance").to(sinks["balances"], name="account-balances"),
        past.select("qid", "time", "vid", "spent").to(sinks["expenditures"], name="daily-expenditures"),
    )


def _news(stream: st.Stream, what: int, **given: pl.Expr) -> st.Stream:
    """Write something as news for the toll calculator."""
    nothing = {name: pl.lit(None, dtype) for name, dtype in NEWS.items() if name not in stream.schema}
    return stream.map(**(nothing | given | {"what": pl.lit(what, _I32)})).select(*NEWS)


def _crossings(reports: st.Stream, pairs: st.Stream, moved: pl.Expr) -> st.Stream:
    """Find the cars that come, and those that report from another segment than before."""
    entered = reports.filter(pl.col("lane") == road.ENTRY)
    crossed = pairs.filter(moved & ~pl.col("lane").is_in([road.ENTRY, road.EXIT]))
    return st.union(_news(entered, CROSSING, entered=pl.lit(True)), _news(crossed, CROSSING, entered=pl.lit(False)))


def _stops(reports: st.Stream) -> st.Stream:
    """Find the cars that report from one place four times in a row; each of their reports says it again."""
    place = ((pl.col("xway").cast(_I64) * 2 + pl.col("dir")) * 5 + pl.col("lane")) * (
        road.SEGMENTS * road.FEET
    ) + pl.col("pos")
    four = reports.map(place=place).aggregate(
        by="vid",
        window=st.last_n(4, every=1),
        place=st.min("place"),
        other=st.max("place"),
        xway=st.last("xway"),
        dir=st.last("dir"),
        seg=st.last("seg"),
        time=st.last("time"),
        name="stops",
    )
    return _news(four.filter(pl.col("place") == pl.col("other")), STOP)


def _statistics(reports: st.Stream) -> list[st.Stream]:
    """Make what is known of a segment when a minute is over: its LAV over five minutes, and how many cars were there."""
    by = [*_SEGMENT]
    cars = reports.aggregate(by=[*by, "vid"], window=st.tumbling("1m"), speed=st.mean("spd"), name="cars")
    segments = cars.aggregate(
        by=by, window=st.tumbling("1m"), average=st.mean("speed"), value=st.count(), name="segments"
    )
    lavs = segments.aggregate(by=by, window=st.sliding("5m", every="1m"), lav=st.mean("average"), name="lavs")
    last_second = (pl.col("ts").dt.epoch("s") - road.BEGIN).cast(_I32)
    return [
        _news(lavs, LAV, time=last_second, value=pl.col("lav").floor().cast(_I64)),
        _news(segments, CARS, time=last_second),
    ]


def _charges(tolls: st.Stream, pairs: st.Stream, moved: pl.Expr) -> st.Stream:
    """Charge the toll of a segment when its car crosses into the next one, or leaves the road there."""
    entered = pl.when("entered").then(ENTERS).otherwise(CROSSES).cast(_I32)
    exits = pairs.filter(pl.col("lane") == road.EXIT).map(
        does=pl.when(moved).then(EXITS_FURTHER).otherwise(EXITS_HERE).cast(_I32), toll=pl.lit(0, _I32)
    )
    steps = st.union(tolls.map(does=entered).select("vid", "does", "toll"), exits.select("vid", "does", "toll"))
    two = steps.aggregate(
        by="vid", window=st.last_n(2, every=1), charge=st.first("toll"), does=st.last("does"), name="charges"
    )
    charged = two.filter((pl.col("charge") > 0) & pl.col("does").is_in([CROSSES, EXITS_FURTHER]))
    nothing = pl.lit(road.ABSENT, _I32)
    return charged.map(charge=pl.col("charge").cast(_I64), qid=nothing, time=nothing).select(
        "vid", "qid", "time", "charge"
    )
