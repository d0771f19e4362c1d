"""How a Python worker ends: without a word when Spark closes its connection.

Spark closes the connections of idle workers after a minute, and of all when a session ends. A worker that waits for its next task then tries to answer, and PySpark's daemon prints the
traceback of a broken pipe on the user's screen: nothing went wrong, and nobody can do anything about it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_DAEMON = "pyspark.daemon"
"""The program that workers are forked from."""


def end_quietly(daemon: ModuleType | None = None) -> None:
    """Let this process end without a traceback when its connection is gone, if it is a worker of PySpark's daemon. May be called again."""
    daemon = daemon or sys.modules["__main__"]
    work = getattr(daemon, "worker", None)
    if (
        getattr(getattr(daemon, "__spec__", None), "name", None) == _DAEMON
        and callable(work)
        and not isinstance(work, _Quiet)
    ):
        daemon.worker = _Quiet(work)  # type: ignore[attr-defined]


class _Quiet:
    """The daemon's function for a task, the next one included that never comes."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work

    def __call__(self, *args: Any) -> Any:
        """Work; say that the worker is to end if nobody listens any more."""
        try:
            return self._work(*args)
        except (BrokenPipeError, ConnectionResetError):
            return 1
