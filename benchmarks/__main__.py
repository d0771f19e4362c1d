"""Run one benchmark by name, or list them."""

import importlib
import sys

BENCHMARKS = {
    "heavy-callers": (
        "benchmarks.cdr.aggregates",
        "heavy_callers",
        "1 h / 1 min by caller, against Spark's own windowed aggregate",
    ),
    "district": (
        "benchmarks.cdr.aggregates",
        "district",
        "60 s / 10 s by district, against Spark's own windowed aggregate",
    ),
    "exact-sums": (
        "benchmarks.cdr.exact",
        "main",
        'those two beside an older checkout, with integers and with floats: ARGS="--before PATH"',
    ),
    "clickstream": (
        "benchmarks.clickstream.patterns",
        "main",
        "session → last 5 pages → top-20 patterns, events/s on two cores",
    ),
    "topk": (
        "benchmarks.topk.views",
        "main",
        "most visited language versions every 30 s: page views/s on two cores, and under twice that load",
    ),
    "linear-road": (
        "benchmarks.linear_road.rating",
        "main",
        'the L-rating: expressways in real time, every row judged; ARGS="--expressways 128 --phase ahead|live|judge --trials 256,128 --input cardata.dat"',
    ),
    "linear-road-elastic": (
        "benchmarks.linear_road.elastic",
        "main",
        'from one instance of everything along the rising traffic, beside allocations by hand; thresholds in the simulator; ARGS="--expressways 96 --allocations 1 cars=2,accounts=2 2"',
    ),
    "user-operator": (
        "benchmarks.operators.fold",
        "main",
        "a keyed fold in Python, against Spark's own operators for user code with state",
    ),
    "cdr-join": (
        "benchmarks.cdr.joins",
        "cdr_join",
        "calls of one caller within 60 s and their distance, against Spark's own stream-stream join",
    ),
    "scalejoin": (
        "benchmarks.joins.scalejoin",
        "scalejoin",
        "the band join of ST-6, 5-minute window, comparisons/s against one thread of NumPy",
    ),
    "cartesian": (
        "benchmarks.joins.cartesian",
        "cartesian",
        "calls of one number that overlap, a predicate with OR, comparisons/s",
    ),
    "strategies": (
        "benchmarks.streamcloud.strategies",
        "main",
        'one query cut as query-cloud, operator-cloud and operator-set-cloud; ARGS="--files 5 --rounds 2 --instances 9 18 36"',
    ),
    "protocols": (
        "benchmarks.streamcloud.protocols",
        "main",
        'state recreation against window recreation for growing windows; ARGS="--callers 1000 10000 --sizes 1 5 10"',
    ),
    "operators": (
        "benchmarks.streamcloud.operators",
        "main",
        'aggregate, map, join and Cartesian product under growing load, 1 and 2 instances: throughput, processor, queues; ARGS="--operators map --seconds 4"',
    ),
    "cartesian-last-n": (
        "benchmarks.streamcloud.last_n",
        "main",
        'the Cartesian product over windows of 20,000 tuples by instances; ARGS="--instances 1 2 4 --rounds 3"',
    ),
    "sine": (
        "benchmarks.clickstream.sine",
        "main",
        'click-stream under a load that triples within half a minute, thresholds of 80 and 40 %; ARGS="--periods 3"',
    ),
    "postgres": (
        "benchmarks.tables.postgres",
        "main",
        'a million keys upserted into PostgreSQL exactly once, against plain COPY; ARGS="--keys 1000000 --rounds 5"',
    ),
    "delta": (
        "benchmarks.tables.delta",
        "main",
        "rows to a Delta table exactly once, against st.parquet_sink; files after an hour of epochs of a second",
    ),
    "kafka": (
        "benchmarks.kafka.heavy",
        "main",
        "heavy callers out of a topic with 10 M records, beside Spark's Kafka source with its own aggregate and with ours",
    ),
    "peers": (
        "benchmarks.peers.beside",
        "main",
        'eight queries beside Flink, Spark\'s own operators and plain Polars; ARGS="--queries q5 --records 1000000 --rounds 5"',
    ),
    "rescale": (
        "benchmarks.peers.rescale",
        "main",
        'instances change under load, beside Flink\'s adaptive scheduler; ARGS="--callers 260000 --per-second 4400 --interval-ms 5000"',
    ),
    "epoch-floor": ("benchmarks.engine.floor", "main", "an epoch with 100 rows, against a bare two-stage Python job"),
    "latency": (
        "benchmarks.latency.windows",
        "main",
        "1,000 rows/s, windows of a second: from a window's end to its rows in an exactly-once Parquet folder",
    ),
    "before-after": (
        "benchmarks.engine.before_after",
        "main",
        'epoch-floor, heavy-callers and clickstream beside an older checkout, turn about: ARGS="--before PATH"',
    ),
    "growth": ("benchmarks.engine.growth", "main", "epoch time and memory at 10⁵, 10⁶, 10⁷ rows of state"),
    "page": (
        "benchmarks.page.view",
        "main",
        "what an open page costs a query with short epochs, and how soon it shows a checkpoint with 10,000 of them",
    ),
    "soak": ("benchmarks.engine.soak", "main", "500 epochs: do time, memory or files grow?"),
    "instances": ("benchmarks.engine.instances", "main", "one instance against two, on two cores"),
    "contract": (
        "benchmarks.engine.contract",
        "main",
        "random cases of every kind in ten minutes: how many, how many wrong",
    ),
    "recovery": (
        "benchmarks.recovery.failures",
        "main",
        "an executor and its state are lost: three ways to have it back",
    ),
    "recovery-interval": ("benchmarks.recovery.intervals", "main", "checkpoints every 1 … 30 s: recovery, latency"),
    "recovery-parallel": ("benchmarks.recovery.parallel", "main", "lost state made anew by one instance or several"),
    "checkpoint-overhead": ("benchmarks.recovery.overhead", "main", "what durable state costs, with 10⁶ keys"),
    "failover": (
        "benchmarks.recovery.failover",
        "main",
        "the driver is killed under load; a standby goes on, or a cold start",
    ),
    "replicas": (
        "benchmarks.recovery.replicas",
        "main",
        "two replicas, one is killed: the gap in the sink; what the second costs",
    ),
    "restart": ("benchmarks.recovery.restart", "main", "the driver is killed with 10⁷ rows of state"),
    "hot-swap": (
        "benchmarks.engine.hot_swap",
        "main",
        'what it costs to replace a query while it runs, beside Spark\'s own way; ARGS="3" runs',
    ),
    "reconfigure": (
        "benchmarks.elastic.reconfigure",
        "main",
        "what a change of degree costs, beside Flink's stop and Spark's own way; ARGS=--alone leaves Flink out",
    ),
    "imbalance": ("benchmarks.elastic.imbalance", "main", "keys whose popularity moves, with and without balancing"),
    "provisioning": ("benchmarks.elastic.provisioning", "main", "a ramp of load: load-aware against individual"),
    "elastic-overhead": ("benchmarks.elastic.overhead", "main", "what being elastic costs when nothing changes"),
    "autoscale": ("benchmarks.elastic.autoscale", "main", "AUTOSCALE's experiments live: static against predictive"),
    "autoscale-all": (
        "benchmarks.elastic.everything",
        "main",
        "all topologies, streams and beginnings of AUTOSCALE live",
    ),
    "advertising": (
        "benchmarks.elastic.advertising",
        "main",
        "AUTOSCALE's selective topology live: overhead over need",
    ),
    "simulator-fidelity": ("benchmarks.elastic.fidelity", "main", "the simulator against those live runs"),
    "policies": ("benchmarks.elastic.policies", "main", "all policies on all traces, in the simulator"),
    "object-store": (
        "benchmarks.remote.throughput",
        "main",
        "heavy callers with the checkpoint in an S3-compatible server, against one in a folder",
    ),
    "rescale-large": (
        "benchmarks.remote.rescale",
        "main",
        "2 → 4 → 3 instances with 2 GB of state on nodes that share nothing but an S3-compatible server",
    ),
    "locality": ("benchmarks.remote.locality", "main", "how much of the state is on the node that reads it"),
    "restart-remote": (
        "benchmarks.remote.restart",
        "main",
        "a driver and its node are lost with 10⁷ rows of state in an S3-compatible server, beside Spark's own",
    ),
    "cluster": ("benchmarks.elastic.cluster", "main", "a standalone cluster, 1 → 4 executors and back under load"),
}


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in BENCHMARKS:
        print("make bench NAME=…\n" + "\n".join(f"  {n:<14} {text}" for n, (_, _, text) in BENCHMARKS.items()))
        return 0 if not name else 1
    module, function, _ = BENCHMARKS[name]
    getattr(importlib.import_module(module), function)(*sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
