"""Alert rules for Prometheus: the problems that people would want to be alerted to."""

from __future__ import annotations

from importlib.resources import files


def alerts() -> str:
    """Return the rules as YAML, as Prometheus reads them."""
    return files("springtide.monitoring").joinpath("alerts.yml").read_text("utf-8")
