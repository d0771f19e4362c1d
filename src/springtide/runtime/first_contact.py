"""The defaults of `query.start()`: which session, which checkpoint, and what people are told about it."""

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
"""Where checkpoints are by default, below the working directory; one folder for each query, named after it."""


def usual_session() -> Any:
    """Return the Spark session of this process, or a new one on this machine."""
    from springtide.runtime.spark.session import found_or_made

    return found_or_made()


def usual_checkpoint(graph: Graph) -> tuple[Path, str]:
    """Return the folder for a query's checkpoint, and what the next start will do there.

    If all rows go to memory, they are gone with the process: a later start has nothing to continue, and begins again.
    """
    if all(isinstance(sink.connector, InMemory) for sink in graph.of_kind(steps.Sink).values()):
        return Path(
            tempfile.mkdtemp(prefix=f"springtide-{graph.name}-")
        ), "its rows are in memory only, so every start begins again"
    folder = Path(FOLDER, graph.name).absolute()
    return folder, _next(folder)


def _next(folder: Path) -> str:
    try:
        last = Checkpoint(folder).latest() if (folder / MARKER).exists() else None
    except CheckpointError as error:  # the start will refuse it, and say the same
        return str(error)
    if last is None:
        return "the next start continues from there"
    if last.ended:
        return f"it reached the end of its input with epoch {last.epoch}; to start over, give another checkpoint= or move the folder away"
    return f"it continues after epoch {last.epoch}"
