"""What `query.start()` does where nothing is said: which session, which checkpoint, and what people are told about it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from springtide.connectors import InMemory
from springtide.query import steps
from springtide.query.graph import Graph
from springtide.state.checkpoint import Checkpoint
from springtide.state.errors import CheckpointError
from springtide.state.names import MARKER

FOLDER = "springtide-checkpoints"
"""Where checkpoints are, below the working directory, if nothing is said; one folder for each query, named after it."""


def usual_session() -> Any:
    """Return the Spark session of this process, or a new one on this machine."""
    from springtide.runtime.spark.session import found_or_made

    return found_or_made()


def usual_checkpoint(graph: Graph) -> tuple[Path, str]:
    """Return the folder for a query's checkpoint, and what the next start will do there.

    Where all rows go to memory they are gone with the process: there is nothing that a later start could go on with, and each begins anew.
    """
    if all(isinstance(sink.connector, InMemory) for sink in graph.of_kind(steps.Sink).values()):
        return Path(
            tempfile.mkdtemp(prefix=f"springtide-{graph.name}-")
        ), "its rows are in memory only, so every start begins anew"
    folder = Path(FOLDER, graph.name).absolute()
    return folder, _next(folder)


def _next(folder: Path) -> str:
    try:
        last = Checkpoint(folder).latest() if (folder / MARKER).exists() else None
    except CheckpointError as error:  # the start will refuse it, and say the same
        return str(error)
    if last is None:
        return "the next start goes on from there"
    if last.ended:
        return f"it has come to the end of its input with epoch {last.epoch}; to begin anew, give another checkpoint= or move the folder away"
    return f"it goes on behind epoch {last.epoch}"
