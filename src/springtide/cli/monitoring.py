"""`springtide monitoring …`: files for Grafana and Prometheus."""

from __future__ import annotations

import typer

from springtide import monitoring

app = typer.Typer(no_args_is_help=True, help="Print a dashboard for Grafana, or alert rules for Prometheus.")


@app.command()
def dashboard() -> None:
    """Print a dashboard for Grafana, as JSON to import."""
    typer.echo(monitoring.dashboard())


@app.command()
def alerts() -> None:
    """Print alert rules for Prometheus, as YAML for `rule_files`."""
    typer.echo(monitoring.alerts(), nl=False)
