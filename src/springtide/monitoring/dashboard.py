"""A Grafana dashboard as importable JSON: one query or several, with Prometheus as the data source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class _Panel:
    title: str
    says: str
    lines: tuple[tuple[str, str], ...]
    """PromQL, and the name of the line."""
    unit: str = "short"
    stepped: bool = False


def _of(metric: str, *more: str) -> str:
    """Return a metric of the selected queries, with further conditions."""
    return "springtide_" + metric + "{" + ", ".join(('query=~"$query"', *more)) + "}"


def _rate(metric: str, *more: str) -> str:
    return f"rate({_of(metric, *more)}[$__rate_interval])"


_REFUSED = 'outcome=~"late|rejected"'
_READ = _rate("rows_read_total")
_NUMBERS = (
    _Panel("Rows in", "Rows that were read, all sources", ((f"sum({_READ})", "read"),), "rowsps"),
    _Panel("Backlog", "Rows that wait at the sources", ((f"sum({_of('backlog_rows')})", "waiting"),)),
    _Panel(
        "Latency, p95",
        "From when a row could be read until the sinks had it",
        (("max(" + _of("latency_seconds", 'quantile="0.95"') + ")", "p95"),),
        "s",
    ),
    _Panel(
        "Last epoch",
        "How long ago it was done",
        ((f"max(time() - {_of('last_epoch_timestamp_seconds')})", "ago"),),
        "s",
    ),
    _Panel(
        "Late and rejected",
        "Share of the rows that were read",
        ((f"sum({_rate('rows_read_total', _REFUSED)}) / sum({_READ})", "share"),),
        "percentunit",
    ),
    _Panel("State", "Of all stateful steps", ((f"sum({_of('state_bytes')})", "state"),), "bytes"),
)
_CHARTS = (
    _Panel(
        "Load",
        "Rows per second that arrive, that are read, and that go to the sinks",
        (
            (f"sum by (query) ({_of('arriving_rows_per_second')})", "{{query}} arriving"),
            (f"sum by (query) ({_READ})", "{{query}} read"),
            (f"sum by (query) ({_rate('rows_published_total')})", "{{query}} out"),
        ),
        "rowsps",
    ),
    _Panel("Backlog", "Rows that wait, by source", ((_of("backlog_rows"), "{{query}} {{source}}"),)),
    _Panel(
        "Instances",
        "Of each subquery; a step is a decision",
        ((_of("instances"), "{{query}} {{subquery}}"),),
        stepped=True,
    ),
    _Panel(
        "Utilisation",
        "Share of the time in which instances work: the mean, and the busiest one",
        (
            (_of("utilisation", 'of="mean"'), "{{query}} {{subquery}}"),
            (_of("utilisation", 'of="highest"'), "{{query}} {{subquery}}, busiest"),
        ),
        "percentunit",
    ),
    _Panel(
        "Latency",
        "From when a row could be read until the sinks had it, by quantile",
        ((_of("latency_seconds"), "{{query}} {{quantile}}"),),
        "s",
    ),
    _Panel(
        "Epoch time",
        "Mean",
        ((f"{_rate('epoch_seconds_sum')} / {_rate('epoch_seconds_count')}", "{{query}}"),),
        "s",
    ),
    _Panel(
        "Decisions and refusals",
        "Changes in five minutes; proposals that a rule refused, as the manager remembers them",
        (
            (f"increase({_of('decisions_total')}[5m])", "{{query}} {{subquery}}"),
            (f"sum by (query, rule) ({_of('refusals')})", "{{query}} refused: {{rule}}"),
        ),
    ),
    _Panel(
        "Late and rejected",
        "Rows per second that were not accepted",
        (
            (
                f"sum by (query, source, outcome) ({_rate('rows_read_total', _REFUSED)})",
                "{{query}} {{source}} {{outcome}}",
            ),
        ),
        "rowsps",
    ),
    _Panel(
        "Work",
        "How many instances were at work on average",
        ((_rate("subquery_busy_seconds_total"), "{{query}} {{subquery}}"),),
    ),
    _Panel(
        "Rows of each subquery",
        "In and out, per second",
        (
            (_rate("subquery_rows_in_total"), "{{query}} {{subquery}} in"),
            (_rate("subquery_rows_out_total"), "{{query}} {{subquery}} out"),
        ),
        "rowsps",
    ),
    _Panel("State", "By subquery", ((_of("state_bytes"), "{{query}} {{subquery}}"),), "bytes"),
    _Panel(
        "Elasticity paused",
        "1 while only manual changes are made",
        ((_of("elasticity_paused"), "{{query}}"),),
        stepped=True,
    ),
)


def dashboard() -> str:
    """Return the dashboard as JSON: import it in Grafana, and select the Prometheus that scrapes the queries."""
    panels = [_panel(i, "stat", p, {"x": 4 * i, "y": 0, "w": 4, "h": 4}) for i, p in enumerate(_NUMBERS)]
    for i, panel in enumerate(_CHARTS):
        place = {"x": 12 * (i % 2), "y": 4 + 8 * (i // 2), "w": 12, "h": 8}
        panels.append(_panel(len(_NUMBERS) + i, "timeseries", panel, place))
    query = {"query": "label_values(springtide_epoch, query)", "refId": "query"}
    made = {
        "title": "Springtide",
        "uid": "springtide",
        "tags": ["springtide"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                {
                    "name": "query",
                    "label": "Query",
                    "type": "query",
                    "datasource": _SOURCE,
                    "definition": query["query"],
                    "query": query,
                    "multi": True,
                    "includeAll": True,
                    "current": {"text": "All", "value": "$__all"},
                    "refresh": 2,
                },
            ]
        },
        "panels": panels,
    }
    return json.dumps(made, indent=1, ensure_ascii=False)


def _panel(number: int, kind: str, panel: _Panel, place: dict[str, int]) -> dict[str, Any]:
    custom = {"lineWidth": 2, "fillOpacity": 8, "lineInterpolation": "stepAfter" if panel.stepped else "linear"}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0} | ({"custom": custom} if kind == "timeseries" else {})
    return {
        "id": number + 1,
        "type": kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(65 + i), "datasource": _SOURCE, "expr": expr, "legendFormat": name}
            for i, (expr, name) in enumerate(panel.lines)
        ],
    }
