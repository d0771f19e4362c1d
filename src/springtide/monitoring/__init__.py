"""Monitoring from outside: a dashboard for Grafana and alert rules for Prometheus, over the metrics that a run serves."""

from springtide.monitoring.dashboard import dashboard
from springtide.monitoring.rules import alerts

__all__ = ["alerts", "dashboard"]
