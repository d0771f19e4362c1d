"""`springtide ui`: a page in the browser that shows a query, live or afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from springtide.cli.errors import CommandError
from springtide.ui.gallery import Gallery
from springtide.ui.serve import PORT, ServeOptions, open_browser, serve

_KINDNESS = 10
"""How much the page yields to the query that it shows when both want the same core (see nice(1))."""


def ui(
    where: Annotated[
        str, typer.Argument(metavar="CKPT|FOLDER", help="A checkpoint, or its URL, or a folder with several.")
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen. Other machines need the token that is printed.")
    ] = ServeOptions.host,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65_535, help=f"By default {PORT}, or a free one; 0: any free one."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, but accept no commands.")] = False,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser, if there is a desktop.")
    ] = True,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> None:
    """Show a query in the browser: its graph, load, buckets, decisions, state; and give it commands.

    It reads the checkpoint, whether the query runs or not, and ends with Ctrl-C; the query does not notice.
    """
    with suppress(OSError):
        os.nice(_KINDNESS)

    def ready(address: str) -> None:
        typer.echo(address)
        if browser:
            open_browser(address)

    serve(Gallery(where), ServeOptions(host, port, read_only), ready, until_stdin_ends=with_parent)


class Page:
    """A page for a run, in a process of its own so as not to burden the driver. It ends with this process at the latest."""

    def __init__(self, root: Path) -> None:
        """Start it; `address` waits until it is there."""
        if not is_installed():
            raise CommandError("--ui needs Starlette and uvicorn; pip install 'springtide[ui]' installs them")
        command = [sys.executable, "-m", "springtide.cli", "ui", str(root), "--with-parent"]
        # In a session of its own: Ctrl-C is meant for the run.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def address(self) -> str:
        """Return where the page is."""
        assert self._process.stdout is not None
        found = self._process.stdout.readline().strip()
        if not found:
            self.stop()
            raise CommandError(
                "the page could not be started, for the reason above; leave --ui out, or see springtide ui"
            )
        return found

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        with self._process:  # closes its pipes and waits for it
            pass


def is_installed() -> bool:
    """Return whether what the page needs is installed."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn"))
