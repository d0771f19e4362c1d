"""Executors of a cluster, requested by other settings than those that the query was started with."""

from __future__ import annotations

import queue
from typing import Any
from unittest.mock import MagicMock

import pytest

from springtide.elastic.resources.sizing import Executors
from springtide.elastic.resources.spark import SparkExecutors
from tests.machine import LONG


class Cluster:
    """A Spark context on a cluster of two executors with two slots each, and what is requested of it."""

    def __init__(self, *, dynamic: bool = False) -> None:
        self.requested: queue.SimpleQueue[int] = queue.SimpleQueue()
        java = MagicMock()
        java.maxNumConcurrentTasks.return_value = 4
        java.executorAllocationManager().isEmpty.return_value = not dynamic
        java.requestTotalExecutors = lambda target, *_: self.requested.put(target)
        self.context: Any = MagicMock(applicationId=f"application-{id(self)}", master="yarn")
        self.context._jsc.sc.return_value = java
        self.context.getConf().get = lambda name, default: {"spark.executor.cores": "2"}.get(name, default)


def test_a_query_that_becomes_elastic_while_it_runs_requests_executors() -> None:
    cluster = Cluster()
    executors = SparkExecutors(cluster.context, None, lambda _: lambda: True)
    try:
        executors.request(10)
        assert not executors.grows()
        executors.want(Executors(warm=1))
        assert executors.grows()
        executors.request(10)
        assert cluster.requested.get(timeout=LONG) == 6
        executors.want(Executors(warm=3))
        executors.request(10)
        assert cluster.requested.get(timeout=LONG) == 8
        executors.want(None)
        assert not executors.grows()
        executors.request(20)
    finally:
        executors.close()
    with pytest.raises(queue.Empty):
        cluster.requested.get_nowait()


def test_where_spark_allocates_executors_nothing_is_requested() -> None:
    cluster = Cluster(dynamic=True)
    executors = SparkExecutors(cluster.context, None, lambda _: lambda: True)
    executors.want(Executors())
    assert not executors.grows()
    executors.close()
