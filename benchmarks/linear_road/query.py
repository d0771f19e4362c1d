"""Linear Road as a query, much as in SEEP (figure 5): the source and what is sorted out behind it (data feeder and forwarder), and three stateful subqueries.

traffic ─┬─ reports ─── cars ─── tolls ─┬───────────→ toll notifications, accident alerts
         │                └─────────────┴─ accounts ─→ account balances
         ├─ questions for balances ────────┘
         └─ questions for past days ─────────────────→ daily expenditures

`cars` and `tolls` are SEEP's toll calculator, cut in two; `accounts` is its toll assessment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import polars as pl

import springtide as st
from benchmarks.linear_road import road
from benchmarks.linear_road.cars import CROSSES, LEAVES, LEAVES_FURTHER, Cars
from benchmarks.linear_road.tolls import Tolls

_I32, _I64 = pl.Int32(), pl.Int64()
GROUPS = 32
"""Expressways and directions are dealt with in so many groups: fewer and larger ones are quicker, more of them can be shared out more evenly."""
BUCKETS = 1024
"""One for each group and second of 30, nearly."""
_ASKS = 99


class Accounts(st.KeyOperator):
    """What each car was charged so far, and what it owes for the segment that it is in; answers questions."""

    state: ClassVar[Mapping[str, Any]] = {"owed": _I32, "balance": _I64}
    output: ClassVar[Mapping[str, Any]] = {"ts": st.TIME, "qid": _I32, "time": _I32, "vid": _I32, "balance": _I64}

    def init(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """Begin with nothing."""
        return {"owed": 0, "balance": 0}

    def process(
        self, key: tuple[Any, ...], state: dict[str, Any], tuples: pl.DataFrame, ready_ts: int
    ) -> list[dict[str, Any]]:
        """Charge for a segment who comes into another one; answer questions."""
        rows = []
        for ts, does, number, time in tuples.select("ts", "does", "number", "time").iter_rows():
            if does == _ASKS:
                rows.append({"ts": ts, "qid": number, "time": time, "vid": key[0], "balance": state["balance"]})
                continue
            if does in (CROSSES, LEAVES_FURTHER):
                state["balance"] += state["owed"]
            state["owed"] = number
        return rows


def linear_road(traffic: st.Stream, sinks: Mapping[str, Any]) -> st.Query:
    """Make the query over messages with the columns of the benchmark; it has the sinks tolls, alerts, balances, expenditures.

    A balance has what was charged in the second of its question: within a second the total order goes by the names of what made a tuple, and `cars` and
    `tolls` come before `traffic`, as the source has to be called.
    """
    way = pl.col("xway") * 2 + pl.col("dir")
    reports = traffic.filter(pl.col("type") == road.REPORT).select(
        "time",
        "vid",
        "spd",
        "lane",
        "pos",
        segment=way * road.SEGMENTS + pl.col("seg"),
        group=way % GROUPS,
        turn=pl.col("time") % road.EVERY,
    )
    cars = reports.operator(Cars(), keys=["group", "turn"], name="cars")
    leaves = pl.col("what").is_in([LEAVES, LEAVES_FURTHER])
    news = cars.filter(~leaves).map(group=pl.col("segment") // road.SEGMENTS % GROUPS)
    tolls = news.operator(Tolls(), keys="group", name="tolls")
    acts = ("vid", "time", "does", "number")
    told = tolls.select("vid", "time", "does", number="toll")
    left = cars.filter(leaves).select("vid", "time", does="what", number=pl.lit(0, _I32))
    asked = traffic.filter(pl.col("type") == road.BALANCE).select(
        "vid", "time", does=pl.lit(_ASKS, pl.Int8), number="qid"
    )
    balances = st.union(*(part.select(*acts) for part in (told, left, asked))).operator(
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
