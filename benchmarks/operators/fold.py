"""A fold in Python per key (count and sum), against Spark's own operators for user code with state; the same files, the same rows in the end.

A million keys are in state before the clock runs. Then each batch has half as many rows as there are keys; 39 % of the keys are called in each,
with what came of them, and give one row. Springtide and Spark read the same Parquet files in batches of the same size, write Parquet files, and
have two cores; Spark keeps its state in RocksDB with change logs. The fold is written the way the documentation of each shows it. Rates are
those of the batches after all keys are there; every key's last row is compared. `ratio_vs_spark` is against the fastest of Spark's three.
"""

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

import springtide as st
from benchmarks.measure import DATA, result, say, scratch, session, summary
from benchmarks.operators.data import FILES_OF_ALL, make

FILES = FILES_OF_ALL + 6
PER_BATCH = 2
"""Files of a batch."""
OURS = 3
"""Our runs before and after each of Spark's."""
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
    data = make(DATA / "payments", int(users), FILES)
    spark = session()
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    ours: list[float] = []
    theirs: dict[str, list[float]] = {}
    with scratch() as folder:
        _springtide(spark, data, folder / "warm-up", int(users))
        for name, fold in SPARK.items():  # turn about, so that a busy minute of the machine hits all
            for i in range(OURS):
                ours += _springtide(spark, data, folder / f"before-{name}-{i}", int(users))
            theirs[name] = _spark(spark, data, folder / name, fold)
            say(f"{name}: {[f'{r / 1e3:.1f} k rows/s' for r in theirs[name]]}")
        for i in range(OURS):
            ours += _springtide(spark, data, folder / f"after-{i}", int(users))
        compared = [_same_rows(folder / "warm-up" / "out", folder / name / "out") for name in SPARK]
    medians = {name: statistics.median(rates) for name, rates in theirs.items()}
    fastest = max(medians, key=lambda name: medians[name])
    result(
        "user-operator",
        ratio_vs_spark=statistics.median(ours) / medians[fastest],
        rows_per_s=statistics.median(ours),
        keys=int(users),
        springtide=summary(ours),
        spark_fastest=fastest,
        spark={name: summary(rates) for name, rates in theirs.items()},
        rows_per_batch=int(users) // FILES_OF_ALL * PER_BATCH,
        rows_compared=compared[0],
    )


def _springtide(spark: Any, data: Path, folder: Path, users: int) -> list[float]:
    payments = st.source("payments", st.parquet(data), ts="ts")
    query = st.Query("fold", payments.operator(Fold(), keys="user", name="fold").to(st.parquet_sink(folder / "out")))
    per_epoch = users // FILES_OF_ALL * PER_BATCH
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


def _spark(spark: Any, data: Path, folder: Path, fold: Callable[[Any], Any]) -> list[float]:
    files = spark.readStream.schema("user bigint, amount bigint, ts timestamp").option("maxFilesPerTrigger", PER_BATCH)
    rows = fold(files.parquet(f"{data}/*.parquet").groupBy("user"))
    writer = rows.writeStream.outputMode("append").format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    if query.exception() is not None:
        raise query.exception()
    rates, done = [], 0
    for progress in query.recentProgress:
        count = progress["numInputRows"]
        if count and done >= FILES_OF_ALL:
            rates.append(count / progress["durationMs"]["triggerExecution"] * 1000)
        done += PER_BATCH if count else 0
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
