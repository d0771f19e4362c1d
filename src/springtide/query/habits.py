"""Names that people know from Spark, Polars, pandas and Flink but that Springtide does not have, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

from springtide.query.errors import QueryError, nearest


class UnknownNameError(QueryError, AttributeError):
    """A name that does not exist. It is an `AttributeError` too, so that `hasattr` works as usual."""


_AGGREGATE = "group and aggregate in one step: .aggregate(by='user', window=st.tumbling('1m'), n=st.count())"
_MAP = "add or replace columns with .map(y=pl.col('x') + 1)"
_FILTER = "keep the tuples that you want with .filter(pl.col('x') > 1)"
_DISTINCT = (
    "a stream has no end, so say for how long a value counts as seen: .aggregate(by='user', window=st.tumbling('1h'), n=st.count()), "
    "or count distinct values with st.count_distinct('user')"
)
_SORT = "a stream has no end, and its tuples are already in the order of ts; to rank values use .top_k(10, 'page', window=st.tumbling('1m'))"
_HEAD = "a stream has no end; look at its first rows with .head(20), or rank with .top_k(10, 'page', window=...)"
_SINK = "end the stream with .to(st.parquet_sink('out/')), .to(st.console()) or another sink"
_RUN = "end the stream with .to(sink) and run st.Query('name', stream.to(sink)): .run_reference() here, .start(spark, checkpoint=...) on Spark"
_ROWS = "nothing runs while a query is built: look at the first rows with .head(20) or .show(), or run it with st.Query('name', stream.to(sink)).run_reference().rows()"
_WINDOW = "give the window to the step: .aggregate(by='user', window=st.sliding('1h', every='1m'), n=st.count())"
_LATE = "say at the source how late rows may come: st.source('calls', connector, ts='time', max_disorder='10s')"
_KEYS = (
    "name the keys at the step: .aggregate(by='user', ...), .join(other, on='user', ...), .operator(..., keys='user')"
)
_INSTANCES = "say how many instances there are at the start, query.start(spark, instances=4, ...), or let them follow the load with elastic=True"
_CODE = "write Python code as an operator: .operator(YourOperator(), keys='user'); see st.KeyOperator"
_UNION = "combine streams that have the same columns with .union(other)"
_JOIN = "pair tuples with .join(other, on='user', within='1m'), or by any condition with .theta_join(other, condition, within='1m')"
_NULLS = "fill nulls with .map(pl.col('x').fill_null(0)), leave them out with .filter(pl.col('x').is_not_null())"
_CAST = "change types with .map(pl.col('x').cast(pl.Int64))"
_NOTHING = "leave it out: state is kept by the engine, and a stream can be used many times"


def _table(*rows: tuple[str, str]) -> dict[str, str]:
    return {name: hint for names, hint in rows for name in names.split()}


STREAM = _table(
    ("group_by groupBy groupby agg aggregates sum mean avg min max count len size", _AGGREGATE),
    ("with_columns with_column withColumn withColumns add_columns assign mutate eval", _MAP),
    ("withColumnRenamed withColumnsRenamed", "rename columns with .rename({'old': 'new'})"),
    ("selectExpr select_expr", "give SQL expressions to .select(pl.sql_expr('x * 2 as y'))"),
    ("columns dtypes", "the columns are in .schema: list(stream.schema)"),
    ("where query", _FILTER),
    ("unique distinct dropDuplicates drop_duplicates dropDuplicatesWithinWatermark nunique n_unique", _DISTINCT),
    ("sort orderBy order_by sort_values sort_by", _SORT),
    ("limit tail take first last fetch slice sample", _HEAD),
    ("top top_n nlargest rank", "rank with .top_k(10, 'page', window=st.tumbling('1m'))"),
    ("display collect toPandas to_pandas to_polars to_dicts toDF rows iter_rows", _ROWS),
    ("start run execute sink execute_and_collect", _RUN),
    ("write writeStream sink_parquet write_parquet sink_csv write_csv to_parquet to_csv add_sink sink_to print", _SINK),
    ("foreach foreachBatch foreach_batch", "give each epoch's rows to a function with .to(st.callback(function))"),
    ("window rolling group_by_dynamic resample expanding ewm tumble over", _WINDOW),
    ("withWatermark with_watermark assign_timestamps_and_watermarks", _LATE),
    ("key_by keyBy partition_by partitionBy", _KEYS),
    ("repartition coalesce set_parallelism rebalance", _INSTANCES),
    (
        "flat_map flatMap",
        "make a list column and .explode it, or write an operator: .operator(YourOperator(), keys='user')",
    ),
    ("apply process transform pipe transformWithState map_batches map_elements map_rows mapInPandas reduce", _CODE),
    ("unionAll unionByName union_all concat append vstack extend", _UNION),
    ("join_asof join_where merge crossJoin cross_join interval_join cogroup co_group connect joinWith", _JOIN),
    ("fillna fill_null fill_nan dropna drop_nulls drop_nans", _NULLS),
    ("cast astype", _CAST),
    (
        "alias",
        "name a step with name=, as in .filter(pl.col('x') > 1, name='large'), and a column in .select(pl.col('x').alias('y'))",
    ),
    ("cache persist checkpoint lazy", _NOTHING),
    (
        "rejects errors side_output get_side_output",
        "rows that do not fit the schema are at .rejected of a source, late ones at .late",
    ),
)
"""What to write instead of methods that a stream does not have."""

QUERY = _table(
    (
        "run execute collect show",
        "run it here with .run_reference().rows(), or on Spark with .start(spark, checkpoint='ckpt/')",
    ),
    (
        "stop wait awaitTermination status scale",
        "call it on the run that .start(spark, checkpoint='ckpt/') returns: run.wait(), run.scale('step', 3), run.stop()",
    ),
)
"""What to write instead of methods that a query does not have."""

AGGREGATE = _table(
    ("alias name as_", "the argument names it: .aggregate(..., n=st.count())"),
    (
        "filter where",
        "filter the stream before the aggregate: stream.filter(...).aggregate(...), or count the tuples that match with st.sum(pl.col('x') > 1)",
    ),
    ("over", "give the window to the step: .aggregate(by='user', window=st.tumbling('1m'), n=st.count())"),
    (
        "cast round fill_null",
        "change the result in the next step: .aggregate(..., n=st.count()).map(pl.col('n').cast(pl.Int32))",
    ),
)
"""What to write instead of methods that an aggregate does not have."""

MODULE = _table(
    (
        "aggregate drop explode filter head join map operator rename select show split theta_join to top_k",
        "it is a method of a stream: st.source('calls', connector, ts='time').{name}(...)",
    ),
    ("group_by groupBy groupby agg", _AGGREGATE),
    ("with_columns with_column withColumn withColumns", _MAP),
    ("where query", _FILTER),
    ("unique drop_duplicates dropDuplicates", _DISTINCT),
    ("sort order_by orderBy", _SORT),
    (
        "col lit when sql_expr expr element struct concat_str coalesce",
        "expressions come from Polars: import polars as pl and write pl.{name}",
    ),
    ("avg average", "write st.mean('x')"),
    ("len size", "write st.count()"),
    ("stddev stddev_samp", "write st.std('x')"),
    ("variance var_samp", "write st.var('x')"),
    ("n_unique nunique countDistinct distinct", "write st.count_distinct('x')"),
    ("approx_count_distinct approx_n_unique", "write st.approx_distinct('x')"),
    ("median", "write st.approx_quantile('x', 0.5)"),
    ("quantile percentile percentile_approx approx_percentile", "write st.approx_quantile('x', 0.99)"),
    ("collect_list implode array_agg list", "write st.collect('x')"),
    ("window tumble", "write st.tumbling('1m') or st.sliding('1h', every='1m')"),
    ("hop hopping slide", "write st.sliding('1h', every='1m')"),
    ("session_window", "write st.session('30m')"),
    ("read_parquet scan_parquet readStream read", "write st.source('calls', st.parquet('calls/'), ts='time')"),
    ("read_csv scan_csv", "write st.source('calls', st.csv('calls/'), ts='time')"),
    ("read_json read_ndjson scan_ndjson", "write st.source('calls', st.json('calls/'), ts='time')"),
    ("from_polars from_dicts from_pandas DataFrame", "write st.source('calls', st.memory(rows), ts='time')"),
    ("sink to_parquet write_parquet", "write stream.to(st.parquet_sink('out/'))"),
    ("concat", "write st.union(a, b)"),
    ("SparkSession", "write st.spark_session('local[2]'), or give query.start your own session"),
    ("Operator ProcessFunction", "derive from st.KeyOperator or st.BucketOperator"),
)
"""What to write instead of names that `springtide` does not have."""


def unknown(step: str, name: str, instead: dict[str, str], names: Iterable[str]) -> UnknownNameError:
    """Return the error for a name that does not exist, with what to write instead or with the nearest name that does exist.

    >>> raise unknown("calls", "groupBy", STREAM, ["filter", "aggregate"])
    Traceback (most recent call last):
    springtide.query.habits.UnknownNameError: step calls: there is no 'groupBy'; group and aggregate in one step: ...
    """
    hint = instead[name].replace("{name}", name) if name in instead else nearest(name, names)
    return UnknownNameError(step, f"there is no {name!r}", hint)
