"""Collects the commands, and shows errors as one line."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import springtide
from springtide.cli.checkpoint import app as checkpoint
from springtide.cli.control import move, pause, rebalance, reload, resume, scale, stop
from springtide.cli.demo import demo
from springtide.cli.explain import explain
from springtide.cli.history import history
from springtide.cli.monitoring import app as monitoring
from springtide.cli.plan import plan
from springtide.cli.replicas import replicas
from springtide.cli.run import run
from springtide.cli.simulate import simulate
from springtide.cli.state import state
from springtide.cli.status import status
from springtide.cli.ui import ui
from springtide.query.errors import SpringtideError


class _OneLineErrors(TyperGroup):
    """Shows what Springtide refuses as one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; exit with 1 when it is refused."""
        try:
            return super().invoke(ctx)
        except SpringtideError as error:
            typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="springtide",
    cls=_OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    explain,
    plan,
    simulate,
    run,
    status,
    replicas,
    state,
    history,
    ui,
    scale,
    move,
    rebalance,
    pause,
    resume,
    reload,
    stop,
    demo,
):
    app.command()(_command)
app.add_typer(checkpoint, name="checkpoint")
app.add_typer(monitoring, name="monitoring")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"springtide {springtide.__version__}")
        raise typer.Exit


@app.callback(epilog="New here? Run [bold]springtide demo[/bold], then read the programs in examples/.")
def _springtide(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Plain queries over streams, run in parallel and elastically on Apache Spark."""


def main() -> None:
    """Run the command line."""
    app(prog_name="springtide")
