"""The table of all figures, docs/figures.md, and pictures, made of the files in benchmarks/results: `python -m benchmarks.figures`.

Every benchmark writes it anew when it keeps its result. One that nobody has written a line for yet, or whose figures have changed their names, is shown with its plain numbers.
"""

import importlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import table as peers

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "figures.md"
HEAD = """# Figures
What was measured, made from the files in [`benchmarks/results`](../benchmarks/results), which have medians, spreads, machine and revision. Each line is `make bench NAME=…`.

On a machine with 2 cores, some of it with other work at the same time (the spreads in brackets show it): compare the sides of a row, not rows with other machines.

| benchmark | Springtide | beside it |
|---|---|---|
"""

Figures = Mapping[str, Any]


def short(value: float) -> str:
    """Write a number so that one can read it: 38.7 k, 3.04 M, 1.7·10¹¹."""
    if abs(value) >= 1e9:
        power = len(f"{abs(value):.0f}") - 1
        return f"{value / 10**power:.1f}·10{str(power).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def spread(s: Figures, unit: str = "", by: float = 1.0) -> str:
    """Write a median and, in brackets, the smallest and the largest."""
    low, middle, high = (short(s[k] * by) for k in ("min", "median", "max"))
    return f"{middle}{unit} ({low}–{high})"


def rate(s: Figures, of: str = "rows") -> str:
    return spread(s, f" {of}/s")


def times(value: float) -> str:
    return f"{value:.3g} ×"


Line = tuple[str, Callable[[Figures], str], Callable[[Figures], str]]
LINES: dict[str, Line] = {
    "heavy-callers": (
        "10 M call records, 10,000 callers, mean and count over 1 h every minute, Parquet to Parquet, same rows",
        lambda d: rate(d["springtide"]),
        lambda d: (
            f"Spark's own windowed aggregate with RocksDB, at its best batch size: {rate(d['spark'])}; {times(d['ratio_vs_spark'])}"
        ),
    ),
    "district": (
        "the same over 60 s every 10 s, 200 groups",
        lambda d: rate(d["springtide"]),
        lambda d: f"at its best batch size: {rate(d['spark'])}; {times(d['ratio_vs_spark'])}",
    ),
    "cdr-join": (
        "calls of the same caller within 60 s, distance computed, 10 M records",
        lambda d: rate(d["springtide"]),
        lambda d: f"Spark's own stream-stream join at its best: {rate(d['spark'])}; {times(d['ratio_vs_spark'])}",
    ),
    "peers": (
        "eight queries on the same files, same rows out, exactly once on all sides, whole runs: ours over Flink's best form, the worst query and the median ([all](#beside-flink-and-the-limit))",
        lambda d: f"{times(d['worst_ratio_vs_flink'])}, {times(d['median_ratio_vs_flink'])}",
        lambda d: f"Flink {d['flink']}; of plain Polars in one batch, the limit, at least {d['share_of_limit']:.0%}",
    ),
    "scalejoin": (
        "band join without an equality, windows of 5 minutes, 2 instances; pairs within the window per second",
        lambda d: spread(d["springtide"]["broadcast"]),
        lambda d: (
            f"the paper's one-thread program in NumPy: {short(d['numpy']['median'])}; {times(d['ratio_vs_numpy'])}"
        ),
    ),
    "cartesian": (
        "overlapping calls, a predicate with OR; pairs within the window per second",
        lambda d: spread(d["springtide"]),
        lambda d: f"one thread of NumPy: {short(d['numpy']['median'])}; {times(d['ratio_vs_numpy'])}",
    ),
    "clickstream": (
        "session → last 5 pages → top 20 patterns, 10 M events",
        lambda d: rate(d["springtide"], "events"),
        lambda d: (
            f"the same in one plain Polars program: {short(d['plain_polars_events_per_s'])} events/s; StreamMine3G on a node with 8 cores: 160 k events/s"
        ),
    ),
    "topk": (
        "the most visited language versions every 30 s, Parquet to Parquet; page views that come twice as fast as they can be processed",
        lambda d: (
            f"{rate(d['springtide'], 'page views')}; {d['open_ratio']:.2f} of it under twice the load, where at most {short(d['open_most_waiting'])} wait and the source holds back the others"
        ),
        lambda d: f"SEEP on 50 VMs: {short(d['paper_events_per_s'])}/s",
    ),
    "linear-road": (
        "Linear Road, three hours: expressways whose last ten minutes, at 1,700 reports/s each, are answered in real time",
        lambda d: (
            f"L = {d['L']}: {d['live_rows']:,} answers, {d['late_answers']} late, {d['wrong_rows']} wrong; {d['p50_ms']:.0f} ms, p95 {d['p95_ms']:.0f}, p99 {d['p99_ms']:.0f}"
        ),
        lambda d: (
            f"SEEP on {d['seep']['vms']} VMs: L = {d['seep']['L']}; {d['seep']['p50_ms']} ms, p95 {d['seep']['p95_ms']}, p99 {d['seep']['p99_ms']}"
        ),
    ),
    "linear-road-short": (
        "the same after a ramp of ten minutes, so that fewer cars have accounts: expressways whose last ten minutes, at 1,700 reports/s each, are answered in real time",
        lambda d: (
            f"L = {d['L']}: {d['live_rows']:,} answers, {d['late_answers']} late, {d['wrong_rows']} wrong; {d['p50_ms']:.0f} ms, p95 {d['p95_ms']:.0f}, p99 {d['p99_ms']:.0f}"
        ),
        lambda d: (
            f"SEEP on {d['seep']['vms']} VMs: L = {d['seep']['L']}; {d['seep']['p50_ms']} ms, p95 {d['seep']['p95_ms']}, p99 {d['seep']['p99_ms']}"
        ),
    ),
    "linear-road-input": (
        "Linear Road with messages that somebody else's generator wrote, the last of them in real time",
        lambda d: (
            f"{d['expressways']} expressways: {d['rows']:,} answers, {d['late_answers']} late, {d['wrong_rows']} wrong; {d['p50_ms']:.0f} ms, p95 {d['p95_ms']:.0f}, p99 {d['p99_ms']:.0f}"
        ),
        lambda d: f"`{d['input']}`",
    ),
    "linear-road-elastic": (
        "the same from one instance of everything, live ([drawn](pictures/linear-road-elastic.png)); in the simulator, instances over the best allocation by hand ([thresholds](pictures/linear-road-threshold.png))",
        lambda d: (
            f"{len(d['live']['changes'])} changes, {d['live']['wrong_rows']} rows wrong, p95 {d['live']['p95_ms']:.0f} ms{_by_hand(d)}; modelled, SEEP's policy {d['over_manual_pct']:.0f} % more ({d['dynamic_instances']} against {d['best_manual_instances']}), `Learned(Foresight())` {d['foresight_over_manual_pct']:.0f} %"
        ),
        lambda d: f"SEEP: {d['seep']['over_manual_pct']} % more",
    ),
    "strategies": (
        "one query with three stateful operators cut in StreamCloud's three ways, on two cores: throughput as Springtide cuts it over query-cloud and operator-cloud (fig. 14, 15; [drawn](pictures/strategies.png), and [as modelled](pictures/strategies-modelled.png) for a core each)",
        lambda d: (
            f"with {d['instances']} instances {times(d['over_query_cloud'])}, {times(d['over_operator_cloud'])}; {_shares(d, 'distribution')} of the cores go to distribution, Spark and epochs; {d['wrong_rows']} rows wrong"
        ),
        lambda d: (
            f"the paper with 30: {d['paper']['over_query_cloud']} × and {d['paper']['over_operator_cloud']} ×; "
            + ", ".join(f"{name} {share} %" for name, share in d["paper"]["distribution_pct"].items())
        ),
    ),
    "protocols": (
        "windows of 1, 5 and 10 s in real time: from the command until a change of owners is complete, by protocol (fig. 19; [drawn](pictures/protocols.png))",
        lambda d: (
            f"{2 * d['callers']:,} open windows: "
            + "; ".join(f"{protocol} {_listed(by, 2)}" for protocol, by in d["completion_s"].items())
            + f"; {d['wrong_rows']} rows wrong"
        ),
        lambda d: (
            f"copied at most: {', '.join(f'{protocol} {short(float(max(by.values())))}B' for protocol, by in d['bytes_moved'].items())}; the paper: state recreation grows with the windows, window recreation takes a window and copies nothing"
        ),
    ),
    "operators": (
        "single operators as fast as they go, 1 and 2 instances on two cores (fig. 16, 18; under growing load, with queues: [drawn](pictures/operators.png); by instances, [with those that are modelled](pictures/operators-modelled.png))",
        lambda d: (
            "; ".join(
                f"{name} {short(by['as_fast_as_it_goes']['1'])} → {short(by['as_fast_as_it_goes']['2'])} {by['unit']}"
                for name, by in d["operators"].items()
            )
            + f"; {d['wrong_rows']} rows wrong; modelled, not measured, for {d['paper']['instances']} instances with a core each: "
            + ", ".join(
                f"{name} {short(by['modelled'][str(d['paper']['instances'])])}" for name, by in d["operators"].items()
            )
        ),
        lambda d: (
            f"StreamCloud with {d['paper']['instances']}: aggregate {short(d['paper']['aggregate'])} rows/s, map {short(d['paper']['map'])} rows/s, cartesian {short(d['paper']['cartesian'])} comparisons/s"
        ),
    ),
    "cartesian-last-n": (
        "Cartesian product over the last 20,000 tuples of each side, a predicate that nothing can be sorted for: tuples/s by the work of the busiest instance, over one (fig. 17; [drawn](pictures/cartesian-last-n.png))",
        lambda d: (
            ", ".join(f"{n}: {gain:.3g} ×" for n, gain in d["gain"].items())
            + f"; as N to the power of {d['exponent']:.2f}; {d['wrong_rows']} rows wrong"
        ),
        lambda d: (
            f"the paper says N to the power of {d['paper']['exponent']}; on two cores: "
            + ", ".join(f"{n}: {short(r['median'])}" for n, r in d["tuples_per_s"].items())
            + " tuples/s. Ours is N: every instance gets every tuple, and compares it with the 1/N of the window that it keeps; in the paper a tuple goes to √N instances, each of which compares it with 1/√N of the window, which divides the comparisons by N as well: N² does not follow from that"
        ),
    ),
    "sine": (
        "click-stream, a load that triples within half a minute and falls again, thresholds of 80 and 40 %, patterns that wait 4 ms as if for a service (StreamMine3G, fig. 4; [drawn](pictures/sine.png))",
        lambda d: (
            f"{d['instances']['least']} to {d['instances']['most']} instances in {d['changes']} changes, {d['saved_pct']:.0f} % of instance-seconds saved; p95 latency {d['p95_latency_s']:.2g} s, at worst {d['worst_p95_latency_s']:.2g} s; {d['wrong_rows']} rows wrong"
        ),
        lambda d: "the paper: no disruption of service",
    ),
    "rescale": (
        "heavy callers rescaled under load, 1 → 2 and 2 → 1 instances: time without output, and how much later the latest window comes",
        lambda d: _rescaled(d, "springtide"),
        lambda d: "; ".join(
            f"{side}: {_rescaled(d, side)}" for side in ("flink-heap", "flink-rocksdb") if _rescaled(d, side)
        ),
    ),
    "user-operator": (
        "a fold in Python per key, 1 M keys",
        lambda d: rate(d["springtide"]),
        lambda d: f"the fastest of Spark's operators for that, {d['spark_operator']}: {times(d['ratio_vs_spark'])}",
    ),
    "kafka": (
        "heavy callers out of a topic: 10 M JSON records in 8 partitions, the broker on the same two cores",
        lambda d: rate(d["rates"]["springtide"]),
        lambda d: (
            f"Spark's Kafka source with its own aggregate: {rate(d['rates']['spark'])}, {times(d['ratio_vs_spark'])}; "
            f"with ours (st.spark): {rate(d['rates']['st_spark'])}, {times(d['ratio_vs_st_spark'])}"
        ),
    ),
    "postgres": (
        "a million new keys upserted into a table of PostgreSQL, exactly once, on Spark; the server on the same two cores",
        lambda d: f"{rate(d['rates']['upsert'])}; {rate(d['rates']['replace'])} where each replaces one",
        lambda d: (
            f"one plain COPY of the same rows into a table with the same primary key: {rate(d['rates']['copy'])}; we are at {times(d['ratio'])}. "
            f"Into a table without any key: {rate(d['rates']['bare'])}; {times(d['ratio_bare'])}"
        ),
    ),
    "delta": (
        "4 M rows to a Delta table, exactly once; files that the table has after an hour of epochs of a second",
        lambda d: (
            f"{rate(d['rates']['delta'])}; files: {d['files']} (on disk until you VACUUM: {d['files_on_disk']:,})"
        ),
        lambda d: f"`st.parquet_sink`: {rate(d['rates']['parquet'])}; {times(d['ratio'])}",
    ),
    "exact-sums": (
        "throughput with exact sums over that of the version before, whose floats were not",
        lambda d: ", ".join(f"{name} {value:.2f} ×" for name, value in d["exact_ratio"].items()),
        lambda d: "of floats: " + ", ".join(f"{name} {value:.2f} ×" for name, value in d["float_ratio"].items()),
    ),
    "instances": (
        "one against two instances on 2 cores, wall time of the stateful stage",
        lambda d: f"{times(d['speedup'])} at least",
        lambda d: ", ".join(f"{name} {spread(s)}" for name, s in d["speedups"].items()),
    ),
    "epoch-floor": (
        "an epoch with 100 rows, one stateful subquery, 2 instances",
        lambda d: f"{d['floor_ms']:.0f} ms, {times(d['ratio_vs_bare'])}",
        lambda d: (
            f"1 is a bare two-stage Python job on the same session, with the same workers: {d['bare_s']['median'] * 1000:.0f} ms"
        ),
    ),
    "latency": (
        "1,000 rows/s, windows of a second: from a window's end to its rows in an exactly-once Parquet folder",
        lambda d: f"{d['p50_ms']:.0f} ms, 99 % within {d['p99_ms']:.0f} ms; {d['wrong_windows']} windows wrong",
        lambda d: (
            f"Flink, a checkpoint every {d['flink_checkpoint_ms']} ms: {d['flink_p50_ms']:.0f} ms, 99 % within {d['flink_p99_ms']:.0f} ms; {times(d['ratio_vs_flink_p99'])}"
        ),
    ),
    "growth": (
        "epoch time at 10⁵, 10⁶ and 10⁷ rows of state, the slowest over the fastest, same input",
        lambda d: times(d["time_ratio"]),
        lambda d: f"memory {times(d['rss_ratio'])}",
    ),
    "imbalance": (
        "10,000 keys whose popularity moves, 15 instances; deviation of the instances' load, of the mean",
        lambda d: f"{spread(d['cv_balanced_pct'], ' %')} after settling",
        lambda d: f"without balancing {d['cv_plain_pct']['median']:.0f} %; chance alone {d['cv_chance_pct']:.1f} %",
    ),
    "hot-swap": (
        "a filter and a user's aggregate replaced with 10⁶ rows of state, under load: extra time of the swapping epoch over its neighbours",
        lambda d: f"{spread(d['by_swap_ms'], ' ms')}; {d['wrong_rows']} rows wrong",
        lambda d: f"Spark's own way, start again with another filter: {d['spark_ms'] / 1000:.1f} s",
    ),
    "reconfigure": (
        "another number of instances with 10⁶ rows of state, under load: extra time of the switching epoch over its neighbours",
        lambda d: (
            ", ".join(f"{change} {s['median']:.0f} ms" for change, s in d["by_change_ms"].items())
            + (f"; where a new worker must come {d['cold_extra_ms']:.0f} ms" if "cold_extra_ms" in d else "")
            + f"; {d['wrong_rows']} rows wrong"
        ),
        lambda d: (
            (f"Flink's adaptive scheduler, 1 → 2: {d['flink_ms']:,.0f} ms without output; " if "flink_ms" in d else "")
            + f"Spark's own way, stop, offline repartition, restart: {d['spark_ms'] / 1000:.0f} s"
        ),
    ),
    "provisioning": (
        "a ramp from 1 to 15 instances and back, live: changes of degree, distance from the target utilisation after them",
        lambda d: f"{d['reconfigurations']} changes, {d['target_error']:.1%}",
        lambda d: (
            f"one instance at a time: {d['individual_reconfigurations']} changes, {d['individual_target_error']:.1%}"
        ),
    ),
    "elastic-overhead": (
        "throughput with a manager that watches every epoch over that without, twelve pairs turn about",
        lambda d: spread(d["pairs"], " ×"),
        lambda d: "1 is the same query without",
    ),
    "cluster": (
        "a standalone cluster on the same machine, 1 → 4 executors and back under load: rows wrong; from the decision to the end of the first epoch on the new executors",
        lambda d: f"{d['wrong_rows']}; {spread(d['seconds_spread'], ' s')}",
        lambda d: f"{d['waited_s']['median']:.0f} s of it until three more JVMs and their Python workers have started",
    ),
    "recovery": (
        "a word counter's executor is killed and its state is lost, 30 s window, checkpoints every 5 s; seconds until it is whole again at 5,000, 10,000, 20,000 fragments/s",
        lambda d: _listed(d["sm_s"]),
        lambda d: f"upstream backup {_listed(d['ub_s'])}; source replay {_listed(d['sr_s'])}",
    ),
    "recovery-interval": (
        "the same at 20,000 fragments/s, by the time between checkpoints: 1, 2, 5, 10, 20, 30 s",
        lambda d: _listed(d["recovery_s"]),
        lambda d: f"latency with 30 s over that with state durable in every epoch: {times(d['latency_30_over_epoch'])}",
    ),
    "recovery-parallel": (
        "30 s of input done again for a lost state by several instances, over one",
        lambda d: times(d["ratio"]),
        lambda d: "on two cores",
    ),
    "checkpoint-overhead": (
        "throughput with 10⁶ keys of state durable in every epoch, and every 5 s",
        lambda d: ", ".join(spread(d["ratios_by_round"][k], " ×") for k in ("epoch", "5s")),
        lambda d: "1 is the same query whose state is not made durable",
    ),
    "restart": (
        "the driver is killed with 10⁷ rows of state; from the new start to the first commit",
        lambda d: spread(d["spread"]["springtide"], " s"),
        lambda d: (
            f"Spark's own operator {spread(d['spread']['spark-default'], ' s')}, with RocksDB {spread(d['spread']['spark-rocksdb'], ' s')}"
        ),
    ),
    "failover": (
        "the driver at work is killed under load: from the kill to the next commit, with a run that stands by and looks for signs of life for 5 s",
        lambda d: f"{spread(d['spread']['standby'], ' s')}; {d['wrong_rows']} rows wrong",
        lambda d: f"a new process that is started in the moment of the kill: {spread(d['spread']['cold'], ' s')}",
    ),
    "replicas": (
        "one of two replicas is killed: the longest time without a new row in a sink over the usual one",
        lambda d: (
            f"{spread(d['spread']['gap_ratio'], ' ×')} with a window every second, {spread(d['spread']['gap_ratio_every_epoch'], ' ×')} with rows in every epoch; {d['wrong_rows']} rows wrong"
        ),
        lambda d: (
            f"throughput of two replicas, a core each, over that of two runs without a group on the same cores: {spread(d['spread']['throughput_ratio'], ' ×')}; over one whose neighbour is idle: {spread(d['spread']['throughput_ratio_idle'], ' ×')}"
        ),
    ),
    "object-store": (
        "heavy callers with the checkpoint in an S3-compatible server on the same machine, state durable every 5 s, 4 instances",
        lambda d: f"{rate(d['store'])}; {d['requests']:.0f} requests an epoch",
        lambda d: f"with the checkpoint in a folder: {rate(d['folder'])}; {times(d['ratio'])}",
    ),
    "locality": (
        "the same on four nodes that share nothing else, in steady state: the share of state that a task reads from its own node's cache",
        lambda d: f"{d['share']:.1%}",
        lambda d: f"{short(d['read_bytes'])} bytes read in {d['epochs']} epochs",
    ),
    "rescale-large": (
        "2 → 4 → 3 instances with more than 2 GB of state on such nodes, under load: extra time of the switching epochs, time until epochs are as short as before",
        lambda d: (
            f"{', '.join(map(str, d['extra_ms_of_each']))} ms; {d['settled_s']:.1f} s; {d['wrong_rows']} rows wrong of {short(d['state_rows'])}"
        ),
        lambda d: f"bytes fetched over bytes that changed owners: {d['fetched_ratio']:.2f}",
    ),
    "restart-remote": (
        "the driver and its node are lost with 10⁷ rows of state in that server; from the start on another node to the first commit",
        lambda d: spread(d["spread"]["springtide"], " s"),
        lambda d: f"Spark's own operator with RocksDB on the same server: {spread(d['spread']['spark'], ' s')}",
    ),
    "soak": (
        "500 epochs, growth over the run",
        lambda d: (
            f"memory {d['slopes_pct']['memory']:.1f} %, files {d['slopes_pct']['files']:.0f} %, time {d['slopes_pct']['time']:.0f} %"
        ),
        lambda d: "",
    ),
    "policies": (
        "all policies on six loads in the simulator, instance-hours over the optimum in hindsight",
        lambda d: (
            f"{d['excess_pct']:.1f} % with `Learned(Foresight())`, and {d['late_ratio']:.2f} of the late time of `Threshold`"
        ),
        lambda d: (
            ", ".join(
                f"{name} {d['compared'][name]['excess_pct']:.0f} %"
                for name in ("threshold", "autoscale", "bottleneck", "ds2")
            )
            + "; ds2 with rows that are late for hours: [all](policies.md#measured)"
        ),
    ),
    "autoscale": (
        "AUTOSCALE's linear topology live, predictive beside static: 5-step from one instance of everything; 3-step from the expert degree",
        lambda d: (
            f"{d['runs']['linear-5-step']['waiting_at_end']:,} rows wait at the end; {d['saved_pct']:.0f} % of the CPU load saved at the same throughput"
        ),
        lambda d: (
            f"static: {d['runs']['linear-5-step-static']['waiting_at_end']:,} rows wait, and more come than go; the paper saves 37.5 %"
        ),
    ),
    "autoscale-all": (
        "all of AUTOSCALE's topologies, streams and beginnings live: instance-seconds that the predictive policy saves, over static instances",
        lambda d: "; ".join(f"{name} {by['saved_instances_pct']:.0f} %" for name, by in d["runs"].items()),
        lambda d: (
            "static instances that could not keep up: "
            + (", ".join(name for name, by in d["runs"].items() if by["congested_static"]) or "none")
            + "; predictive: "
            + (", ".join(name for name, by in d["runs"].items() if by["congested_predictive"]) or "none")
        ),
    ),
    "advertising": (
        "its selective topology live, instances over those that the work filled",
        lambda d: f"{d['overhead_pct']:.1f} %",
        lambda d: f"over the optimum in hindsight {d['over_the_optimum_pct']:.0f} %; the paper's overhead is 12 %",
    ),
    "simulator-fidelity": (
        "the simulator, calibrated on the first third of those runs, against the rest: how far its instances are off",
        lambda d: f"{d['degree_error_pct']:.0f} % (the worst run {d['worst_pct']:.0f} %)",
        lambda d: "",
    ),
    "page": (
        "epoch time of a query with short epochs while its page is open, over that without; time until the first view of a checkpoint with 10,000 epochs",
        lambda d: f"{d['ratio']:.3f} ×; {spread(d['first_s'], ' s')}",
        lambda d: f"all 10,000 epochs are in its charts after {spread(d['whole_s'], ' s')}",
    ),
    "before-after": (
        "this code beside that of before the rebuilding (c2005d3), turn about on the same rows: our speed over theirs",
        lambda d: ", ".join(f"{query} {spread(ratio)}" for query, ratio in d["ratios"].items()),
        lambda d: "",
    ),
    "contract": (
        "random cases of every kind in ten minutes, in two processes",
        lambda d: f"{d['cases']:,} cases, {d['wrong']} wrong",
        lambda d: "",
    ),
}


def _by_hand(d: Figures) -> str:
    """Compare the live run with the best fixed allocation, where that was run too."""
    if "live_manual" not in d:
        return ""
    ours, best = sum(d["live"]["instances"].values()), d["live_best_manual_instances"]
    return f", {ours} instances in the end against {best} by hand ({d['live_over_manual_pct']:.0f} % more)"


def _listed(by: Mapping[str, float], digits: int = 1) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in by.values()) + " s"


def _shares(d: Figures, part: str) -> str:
    most = str(d["instances"])
    return ", ".join(f"{name} {by[most][part]:.0f} %" for name, by in d["breakdown_pct"].items())


def _rescaled(d: Figures, side: str) -> str:
    """Say what became of a side with each size of state, or nothing."""
    said = []
    for size in d["sizes"].values():
        if side not in size["sides"]:
            continue
        found = size["sides"][side]
        changes = [found[change] for change in ("1 → 2", "2 → 1")]
        gaps = "; ".join(f"{c['gap_ms']:,} ms without output, {c['extra_ms']:,} ms later" for c in changes)
        state = f"{short(float(size['panes']))} rows of state, {short(float(found['state_bytes']))}B"
        said.append(f"with {state}: {gaps}; {found['wrong_rows']} rows wrong")
    return "; ".join(said)


def _plain(d: Figures) -> str:
    """Show what nobody has written a line for: its numbers and its spreads."""
    numbers = [
        f"{name} {spread(v) if isinstance(v, dict) else short(v) if isinstance(v, float) else v}"
        for name, v in d.items()
        if (isinstance(v, dict) and v.keys() == {"median", "min", "max", "n"}) or isinstance(v, int | float)
    ]
    return "; ".join(numbers)


def table(results: Mapping[str, Figures], said: Mapping[str, str]) -> str:
    """Write the page: `said` has a line about each benchmark, for those without one here."""
    rows = []
    for name in [*(n for n in LINES if n in results), *sorted(results.keys() - LINES.keys())]:
        d = results[name]
        what, ours, beside = LINES.get(name, (said.get(name, ""), _plain, lambda _: ""))
        try:
            cells = ours(d), beside(d)
        except (KeyError, TypeError):  # its figures have other names by now
            cells = _plain(d), ""
        rows.append(f"| `{name}`: {what} | {cells[0]} | {cells[1]} |\n")
    return HEAD + re.sub(r"(?<= )-(?=\d)", "−", "".join(rows))


def page() -> str:
    """Make the page of what is in benchmarks/results."""
    from benchmarks.__main__ import BENCHMARKS

    results = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    said = table(results, {name: text for name, (_, _, text) in BENCHMARKS.items()})
    return said + (peers.section(results["peers"], spread) if "peers" in results else "")


def write() -> None:
    """Write docs/figures.md."""
    PAGE.write_text(page(), "utf-8")


PICTURES = {
    "peers": "benchmarks.peers.picture",
    "linear-road-elastic": "benchmarks.linear_road.elastic",
    "sine": "benchmarks.clickstream.sine",
    "operators": "benchmarks.streamcloud.operators",
    "protocols": "benchmarks.streamcloud.protocols",
    "cartesian-last-n": "benchmarks.streamcloud.last_n",
    "reconfigure": "benchmarks.elastic.reconfigure",
}
"""What draws a result as it was kept."""


def draw(name: str) -> None:
    """Draw what was kept of a benchmark, if it has a picture."""
    if name in PICTURES:
        importlib.import_module(PICTURES[name]).draw(json.loads((RESULTS / f"{name}.json").read_text("utf-8")))


if __name__ == "__main__":
    write()
    for drawn in PICTURES:
        if (RESULTS / f"{drawn}.json").exists():
            draw(drawn)
