"""Springtide: an elastic stream processor in Python on Apache Spark."""

from typing import TYPE_CHECKING

from springtide.elastic.forecast import Trend
from springtide.elastic.policies.balancing import Balancing
from springtide.elastic.policies.bottleneck import Bottleneck
from springtide.elastic.policies.ds2 import DS2
from springtide.elastic.policies.foresight import Foresight
from springtide.elastic.policies.learned import Learned
from springtide.elastic.policies.manual import Manual
from springtide.elastic.policies.policy import Policy, Proposal
from springtide.elastic.policies.predictive import Predictive
from springtide.elastic.policies.threshold import Threshold
from springtide.elastic.resources.sizing import Executors
from springtide.elastic.seasons import Seasonal
from springtide.elastic.settings import Elastic
from springtide.elastic.snapshot import Snapshot
from springtide.query.aggregates import (
    Aggregate,
    approx_distinct,
    approx_frequent,
    approx_quantile,
    collect,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    min,
    std,
    sum,
    user_aggregate,
    var,
)
from springtide.query.branches import Branches
from springtide.query.errors import (
    QueryError,
    SinkError,
    SpringtideError,
    TakenBackError,
    UnavailableError,
    UserCodeError,
)
from springtide.query.operators import BucketOperator, KeyOperator
from springtide.query.source import source
from springtide.query.stream import Stream, union
from springtide.query.types import END_OF_TIME, TIME, micros
from springtide.query.windows import last_n, session, sliding, tumbling
from springtide.runtime.durability import Durability
from springtide.runtime.query import Query
from springtide.runtime.replicas.group import OtherRows, ReplicaError
from springtide.runtime.replicas.settings import Replicated
from springtide.runtime.spark.session import session as spark_session
from springtide.runtime.standby import Standby, StandbyEnded
from springtide.sinks.callback import callback
from springtide.sinks.console import console
from springtide.sinks.databases.postgres import postgres_sink
from springtide.sinks.databases.sink import database_sink
from springtide.sinks.lakes.delta import delta_sink
from springtide.sinks.lakes.iceberg import iceberg_sink
from springtide.sinks.memory import memory_sink
from springtide.sinks.parquet import parquet_sink
from springtide.sinks.spark import spark_sink
from springtide.sources.calls import call_records
from springtide.sources.csv import csv
from springtide.sources.delta import delta
from springtide.sources.generate import generate
from springtide.sources.json import json
from springtide.sources.memory import memory
from springtide.sources.parquet import parquet
from springtide.sources.postgres import postgres
from springtide.sources.profiles import constant, sine, steps, trace
from springtide.sources.spark import spark
from springtide.state.errors import CheckpointError
from springtide.topics.registry import schema_registry
from springtide.topics.sink import kafka_sink
from springtide.topics.source import kafka

__version__ = "0.1.0"

__all__ = [
    "DS2",
    "END_OF_TIME",
    "TIME",
    "Aggregate",
    "Balancing",
    "Bottleneck",
    "Branches",
    "BucketOperator",
    "CheckpointError",
    "Durability",
    "Elastic",
    "Executors",
    "Foresight",
    "KeyOperator",
    "Learned",
    "Manual",
    "OtherRows",
    "Policy",
    "Predictive",
    "Proposal",
    "Query",
    "QueryError",
    "ReplicaError",
    "Replicated",
    "Seasonal",
    "SinkError",
    "Snapshot",
    "SpringtideError",
    "Standby",
    "StandbyEnded",
    "Stream",
    "TakenBackError",
    "Threshold",
    "Trend",
    "UnavailableError",
    "UserCodeError",
    "approx_distinct",
    "approx_frequent",
    "approx_quantile",
    "call_records",
    "callback",
    "collect",
    "console",
    "constant",
    "count",
    "count_distinct",
    "csv",
    "database_sink",
    "delta",
    "delta_sink",
    "first",
    "generate",
    "iceberg_sink",
    "json",
    "kafka",
    "kafka_sink",
    "last",
    "last_n",
    "max",
    "mean",
    "memory",
    "memory_sink",
    "micros",
    "min",
    "parquet",
    "parquet_sink",
    "postgres",
    "postgres_sink",
    "schema_registry",
    "session",
    "sine",
    "sliding",
    "source",
    "spark",
    "spark_session",
    "spark_sink",
    "std",
    "steps",
    "sum",
    "trace",
    "tumbling",
    "union",
    "user_aggregate",
    "var",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Refuse what is not there, and say what to write instead."""
        from springtide.query.habits import MODULE, unknown

        if name.startswith("_"):
            raise AttributeError(name)
        raise unknown("(springtide)", name, MODULE, __all__)
