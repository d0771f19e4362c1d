"""Alert rules for Prometheus: what people would want to be woken for."""

from __future__ import annotations

from importlib.resources import files


def alerts() -> str:
    """Return the rules as Prometheus reads them, in YAML."""
    return files("springtide.monitoring").joinpath("alerts.yml").read_text("utf-8")
