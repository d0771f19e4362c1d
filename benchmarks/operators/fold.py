"""A fold in Python per key (count and sum), against Spark's own operators for user code with state; the same files, the same rows in the end.

Every key is in state before the clock runs: eight files have one row of each. After that rows are of keys at random, and each call gives one row. Both sides read the
same Parquet files, write Parquet files, and have two cores; Spark keeps its state in RocksDB with change logs. The fold is written the way the
documentation of each shows it. Rates are those of the batches after all keys are there; the last row of every key is compared.

Spark has three such operators. A contest with a tenth of the keys finds the fastest, which then runs with all of them. That takes it minutes, so it does
so on the first files only, and takes one file at a time, ours four: with tens of seconds per batch that makes no difference to it.
"""

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

import springtide as st
from benchmarks.measure import DATA, result, say, scratch, session, summary
from benchmarks.operators.data import FILES_OF_ALL, make

FILES = FILES_OF_ALL + 12
SPARK_FILES = FILES_OF_ALL + 3
"""The files that Spark gets."""
PER_EPOCH = 4
"""Files of an epoch of ours."""
OURS = 3
"""Our runs before and after Spark's."""
OUTPUT = "user bigint, n bigint, total bigint"


class Fold(st.KeyOperator):
    """How many payments, and how much."""

    state: ClassVar = {"n": pl.Int64, "total": pl.Int64}
    output: ClassVar = {"user": pl.Int64, "n": pl.Int64, "total": pl.Int64, "ts": st.TIME}

    def init(self, key: Any) -> Any:
        return {"n": 0, "total": 0}

    def process(self, key: Any, state: Any, tuples: pl.DataFrame, ready_ts: int) -> Any:
        for (amount,) in tuples.select("amount").iter_rows():
            state["n"] += 1
            state["total"] += amount
        return [{"user": key[0], "n": state["n"], "total": state["total"], "ts": ready_ts}]


def main(users: str = "1000000") -> None:
    spark = session()
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    with scratch() as folder:
        contest = _contest(spark, int(users) // 10, folder / "contest")
        fastest = max(contest, key=lambda name: statistics.median(contest[name]))
        data = make(DATA / "payments", int(users), FILES)
        few = _first(data, folder / "first-files", SPARK_FILES)
        _springtide(spark, few, folder / "compared", int(users))
        ours = _several(spark, data, folder / "before", int(users))
        theirs = _spark(spark, few, folder / "spark", fastest)
        ours += _several(spark, data, folder / "after", int(users))
        compared = _same_rows(folder / "compared" / "out", folder / "spark" / "out")
    result(
        "user-operator",
        ratio_vs_spark=statistics.median(ours) / statistics.median(theirs),
        rows_per_s=statistics.median(ours),
        spark_rows_per_s=statistics.median(theirs),
        keys=int(users),
        springtide=summary(ours),
        spark=summary(theirs),
        spark_operator=fastest,
        contest={"keys": int(users) // 10} | {name: summary(rates) for name, rates in contest.items()},
        rows_compared=compared,
    )


def _contest(spark: Any, users: int, folder: Path) -> dict[str, list[float]]:
    """Run all of Spark's operators, and ours to compare the rows."""
    data = make(DATA / "payments", users, SPARK_FILES)
    _springtide(spark, data, folder / "springtide", users)
    rates = {}
    for name in SPARK:
        rates[name] = _spark(spark, data, folder / name, name)
        _same_rows(folder / "springtide" / "out", folder / name / "out")
    return rates


def _first(data: Path, folder: Path, files: int) -> Path:
    folder.mkdir()
    for file in sorted(data.glob("*.parquet"))[:files]:
        (folder / file.name).symlink_to(file)
    return folder


def _several(spark: Any, data: Path, folder: Path, users: int) -> list[float]:
    return [rate for i in range(OURS) for rate in _springtide(spark, data, folder / str(i), users)]


def _springtide(spark: Any, data: Path, folder: Path, users: int) -> list[float]:
    payments = st.source("payments", st.parquet(data), ts="ts")
    query = st.Query("fold", payments.operator(Fold(), keys="user", name="fold").to(st.parquet_sink(folder / "out")))
    per_epoch = users // FILES_OF_ALL * PER_EPOCH
    run = query.start(spark, checkpoint=folder / "checkpoint", instances=2, rows_per_epoch=per_epoch)
    run.wait()
    epochs, rates, done = run.metrics(), [], 0
    for before, epoch in zip([None, *epochs], epochs, strict=False):
        if before is not None and done >= users and epoch["rows"]:
            rates.append(epoch["rows"] / (epoch["at"] - before["at"]))
        done += epoch["rows"]
    say(f"springtide: {[f'{r / 1e3:.0f} k rows/s' for r in rates]}")
    return rates


# ── Spark's own ───────────────────────────────────────────────────────────────────────────────────────────────────


def _apply_in_pandas(grouped: Any) -> Any:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

    def fold(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        n, total = state.get if state.exists else (0, 0)
        for frame in frames:
            n += len(frame)
            total += int(frame["amount"].sum())
        state.update((n, total))
        yield pd.DataFrame({"user": [key[0]], "n": [n], "total": [total]})

    state = "n bigint, total bigint"
    return grouped.applyInPandasWithState(fold, OUTPUT, state, "append", GroupStateTimeout.NoTimeout)


def _transform_in_pandas(grouped: Any) -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Folding(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("fold", "n bigint, total bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            n, total = self.state.get() or (0, 0)
            for frame in rows:
                n += len(frame)
                total += int(frame["amount"].sum())
            self.state.update((n, total))
            yield pd.DataFrame({"user": [key[0]], "n": [n], "total": [total]})

        def close(self) -> None:
            pass

    return grouped.transformWithStateInPandas(Folding(), OUTPUT, "Append", "None")


def _transform(grouped: Any) -> Any:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Folding(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.state = handle.getValueState("fold", "n bigint, total bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            n, total = self.state.get() or (0, 0)
            for row in rows:
                n += 1
                total += row.amount
            self.state.update((n, total))
            yield Row(user=key[0], n=n, total=total)

        def close(self) -> None:
            pass

    return grouped.transformWithState(Folding(), OUTPUT, "Append", "None")


SPARK: dict[str, Callable[[Any], Any]] = {
    "applyInPandasWithState": _apply_in_pandas,
    "transformWithState": _transform,
    "transformWithStateInPandas": _transform_in_pandas,
}


def _spark(spark: Any, data: Path, folder: Path, name: str) -> list[float]:
    files = spark.readStream.schema("user bigint, amount bigint, ts timestamp").option("maxFilesPerTrigger", 1)
    rows = SPARK[name](files.parquet(f"{data}/*.parquet").groupBy("user"))
    writer = rows.writeStream.outputMode("append").format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    rates, done = [], 0
    for progress in query.recentProgress:
        count = progress["numInputRows"]
        if count and done >= FILES_OF_ALL:
            rates.append(count / progress["durationMs"]["triggerExecution"] * 1000)
        done += 1 if count else 0
    say(f"{name}: {[f'{r / 1e3:.1f} k rows/s' for r in rates]}")
    return rates


def _same_rows(ours: Path, theirs: Path) -> int:
    """Compare the last row of every key."""

    def last(folder: Path) -> pl.DataFrame:
        rows = pl.concat([pl.read_parquet(f, columns=["user", "n", "total"]) for f in folder.glob("*.parquet")])
        return rows.sort("user", "n").unique("user", keep="last", maintain_order=True)

    a, b = last(ours), last(theirs)
    if not a.equals(b):
        raise AssertionError(f"other rows: {a.head()} {b.head()}")
    say(f"the last rows of {a.height} keys are the same")
    return a.height
