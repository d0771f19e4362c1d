"""Preferred locations for what comes out of a shuffle: tasks go where their state is, as far as Spark's scheduler allows.

Spark asks an RDD where each partition would best be computed, and goes on to the RDDs that it is made of, as long as there is no shuffle in between. An RDD of
a collection can be given such places (`SparkContext.makeRDD`); what a shuffle gives cannot. So the two are put together: of their product, which Spark
computes lazily, only the diagonal is kept, partition i of one with partition i of the other. One element of the first stands beside all of the second, so
nothing is held or copied. Nothing of this needs code of ours in the JVM: a set of numbers is a function from numbers to true or false there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from pyspark import RDD, SparkContext

MOST = 256
"""The most partitions for which this is done: the product has the square of that, as objects in the driver."""


class Executor(NamedTuple):
    """An executor of the application."""

    id: str
    host: str

    @property
    def location(self) -> str:
        """How Spark writes it as a preferred location; the host counts if the executor is gone."""
        return f"executor_{self.host}_{self.id}"


class LiveExecutors:
    """The executors that exist, listed again only when they have changed."""

    def __init__(self, context: SparkContext) -> None:
        """Name the application."""
        self._java: Any = context._jsc.sc()
        self._seen, self._found = "", tuple[Executor, ...]()

    def __call__(self) -> tuple[Executor, ...]:
        """Return them in the order in which they came; none in local mode."""
        now = str(self._java.getExecutorIds().toString())
        if now != self._seen:
            scheduler, found = self._java.taskScheduler(), list[Executor]()
            addresses = str(self._java.getExecutorMemoryStatus().keySet().mkString(" ")).split()
            for host in dict.fromkeys(address.rpartition(":")[0] for address in addresses):
                alive = scheduler.getExecutorsAliveOnHost(host)
                if alive.isDefined():
                    found += [Executor(id, host) for id in str(alive.get().mkString(" ")).split()]
            self._found = tuple(sorted(found, key=_age))
            # one that has registered and was not given any task yet is found with the next look
            self._seen = now if len(found) == int(self._java.getExecutorIds().size()) else ""
        return self._found


def _age(executor: Executor) -> tuple[int, str]:
    return (int(executor.id) if executor.id.isdecimal() else -1), executor.id


def preferring(rdd: RDD[Any], executors: tuple[Executor, ...]) -> RDD[Any]:
    """Return the same partitions, each to be computed on a given executor if possible."""
    context = rdd.context
    jvm: Any = context._jvm
    located, diagonal, anything = _places(context, executors)
    product = located.cartesian(rdd._jrdd).rdd()
    kept = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(product, diagonal)
    values = jvm.org.apache.spark.api.java.JavaPairRDD(kept, anything, anything).values()
    return RDD(values, context, rdd._jrdd_deserializer)


@lru_cache(maxsize=32)
def _places(context: SparkContext, executors: tuple[Executor, ...]) -> tuple[Any, Any, Any]:
    """Make an RDD with an element on each executor, and name the partitions of a product with it that are on its diagonal."""
    jvm: Any = context._jvm
    scala, anything = jvm.PythonUtils.toSeq, jvm.scala.reflect.ClassTag.AnyRef()
    places = [jvm.scala.Tuple2(i, scala([e.location])) for i, e in enumerate(executors)]
    located = jvm.org.apache.spark.api.java.JavaRDD(context._jsc.sc().makeRDD(scala(places), anything), anything)
    diagonal = scala([i * (len(executors) + 1) for i in range(len(executors))]).toSet()
    return located, diagonal, anything
