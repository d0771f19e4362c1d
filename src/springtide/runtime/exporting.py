"""Metrics of a run for Prometheus, over HTTP.

Names and numbers only: no rows, no paths, nothing that a connector was told. There is no authentication, so
it listens on this machine alone unless told otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from springtide.elastic.snapshot import Snapshot
from springtide.query.errors import SpringtideError
from springtide.state.manifest import Manifest

LOOPBACK = "127.0.0.1"


class Exporter(Collector):
    """Serves what it was last told about a run, at `/metrics`."""

    def __init__(self, query: str, port: int, host: str = LOOPBACK) -> None:
        """Begin to listen; port 0 is any that is free."""
        self._query = query
        self._last: tuple[Manifest, Snapshot] | None = None
        self._totals: Mapping[tuple[str, str], float] = {}
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise SpringtideError(f"metrics cannot be served on {host}:{port}: {why}; give another port") from None
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Let the port go."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def observe(self, manifest: Manifest, snapshot: Snapshot) -> None:
        """Take in an epoch."""
        new = {("epochs", ""): 1.0, ("seconds", ""): snapshot.seconds, ("published", ""): manifest.metrics.published}
        for name, load in snapshot.subqueries.items():
            new |= {("in", name): sum(load.rows_in), ("out", name): sum(load.rows_out), ("busy", name): sum(load.busy)}
        # Replaced, not changed: somebody may be reading.
        self._totals = {**self._totals, **{key: self._totals.get(key, 0.0) + value for key, value in new.items()}}
        self._last = manifest, snapshot

    def collect(self) -> Iterable[Metric]:
        """Return the current values."""
        if self._last is None:
            return
        manifest, snapshot = self._last
        yield from self._epochs(manifest, snapshot)
        yield from self._sources(manifest, snapshot)
        yield from self._subqueries(manifest, snapshot)
        yield from self._elasticity(manifest, snapshot)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _epochs(self, manifest: Manifest, snapshot: Snapshot) -> Iterator[Metric]:
        yield self._gauge("epoch", "Number of the last committed epoch", {(): manifest.epoch})
        took = SummaryMetricFamily("springtide_epoch_seconds", "Duration of the epochs of this run", labels=["query"])
        took.add_metric([self._query], int(self._totals["epochs", ""]), self._totals["seconds", ""])
        yield took
        published = {(): self._totals["published", ""]}
        yield self._counter("rows_published", "Rows that this run gave to sinks", published)
        yield self._gauge("last_epoch_timestamp_seconds", "When the last epoch was done", {(): snapshot.time})
        waits = snapshot.latency
        if waits is not None:
            found = {("0.5",): waits.p50, ("0.95",): waits.p95, ("0.99",): waits.p99}
            text = "Time from when a row could be read until the sinks had it, in the last epoch"
            yield self._gauge("latency_seconds", text, found, "quantile")

    def _sources(self, manifest: Manifest, snapshot: Snapshot) -> Iterator[Metric]:
        kinds = ("accepted", "late", "rejected")
        read = {(name, kind): getattr(s, kind) for name, s in manifest.sources.items() for kind in kinds}
        yield self._counter("rows_read", "Rows read since the checkpoint began", read, "source", "outcome")
        loads = snapshot.sources.items()
        rates = {(name,): _per_second(s.rows if s.arrived is None else s.arrived, snapshot) for name, s in loads}
        text = "Rows per second that arrived at a source, during the last epoch and the wait before it"
        yield self._gauge("arriving_rows_per_second", text, rates, "source")
        yield self._gauge("backlog_rows", "Rows that wait at a source", {(n,): s.backlog for n, s in loads}, "source")

    def _subqueries(self, manifest: Manifest, snapshot: Snapshot) -> Iterator[Metric]:
        loads = snapshot.subqueries
        yield self._gauge("instances", "Instances", {(n,): s.instances for n, s in loads.items()}, "subquery")
        used = {(n, "mean"): snapshot.mean_utilisation(n) for n in loads}
        used |= {(n, "highest"): max(snapshot.utilisation(n), default=0.0) for n in loads}
        text = "Share of the time available to an instance in which it worked, in the last epoch"
        yield self._gauge("utilisation", text, used, "subquery", "of")
        yield self._gauge("state_bytes", "State", {(n,): s.state_bytes for n, s in loads.items()}, "subquery")
        for key, name, text in (
            ("in", "subquery_rows_in", "Rows that went into a subquery in this run"),
            ("out", "subquery_rows_out", "Rows that a subquery produced in this run"),
            ("busy", "subquery_busy_seconds", "Time that instances worked in this run"),
        ):
            yield self._counter(name, text, {(n,): self._totals[key, n] for n in loads}, "subquery")

    def _elasticity(self, manifest: Manifest, snapshot: Snapshot) -> Iterator[Metric]:
        versions = {(name,): bucket_map.version for name, bucket_map in manifest.maps.items()}
        text = "Changes of instances or buckets since the checkpoint began"
        yield self._counter("decisions", text, versions, "subquery")
        if manifest.elastic:
            yield self._gauge(
                "elasticity_paused", "1 while only manual changes are made", {(): manifest.elastic.paused}
            )
            refused = Counter[tuple[str, ...]]()
            for refusal in manifest.elastic.refusals:
                refused[refusal.subquery, refusal.rule] += refusal.times
            yield self._gauge("refusals", "Refused proposals that the manager remembers", refused, "subquery", "rule")
        for name, text, number in (
            ("slots", "Tasks that can run at once", snapshot.slots),
            ("executors", "Executors of Spark", snapshot.executors),
        ):
            if number is not None:
                yield self._gauge(name, text, {(): number})

    def _gauge(self, name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
        return self._filled(GaugeMetricFamily(f"springtide_{name}", text, labels=["query", *labels]), values)

    def _counter(self, name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
        return self._filled(CounterMetricFamily(f"springtide_{name}", text, labels=["query", *labels]), values)

    def _filled(self, family: Any, values: Mapping[Any, float]) -> Metric:
        for labels, value in values.items():
            family.add_metric([self._query, *labels], value)
        return family  # type: ignore[no-any-return]


def _per_second(rows: int, snapshot: Snapshot) -> float:
    return rows / snapshot.period if snapshot.period else 0.0
