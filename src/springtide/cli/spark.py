"""A Spark session for the command line: the JVM's output goes to a file, not to the screen."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from springtide.cli.errors import CommandError
from springtide.cli.sessions import SessionOptions
from springtide.query.errors import QueryError


def start_spark(options: SessionOptions, name: str, log: Path, module: ModuleType | None = None) -> Any:
    """Start a Spark session whose tasks can use what `module` defines."""
    log.parent.mkdir(parents=True, exist_ok=True)
    size = log.stat().st_size if log.exists() else 0
    with _stderr_to(log):  # the JVM keeps the stderr that it was started with
        try:
            from springtide.runtime.spark.session import session  # here: PySpark takes a second to import
            from springtide.runtime.spark.user_modules import ship
            from springtide.sparks import check_session

            if module is not None:
                ship(module)
            if options.function is None:
                spark = session(options.master, name=name, **options.settings)
            else:
                spark = options.function()
            check_session("(--session)", spark)
            spark.sparkContext.setLogLevel("WARN")
        except QueryError:
            raise
        except Exception as error:
            said = log.read_bytes()[size:].decode(errors="replace")
            raise CommandError(f"Spark did not start: {_reason(error, said)}; its log is {log}") from None
    return spark


def warm_up(spark: Any, tasks: int) -> None:
    """Have Spark start a number of Python workers: each needs a second to import what a task needs."""
    spark.sparkContext.parallelize(range(tasks), tasks).foreachPartition(_import)


def _import(nothing: Iterable[int]) -> None:
    for _ in nothing:  # a worker that leaves input unread is thrown away by Spark
        pass
    importlib.import_module("springtide.runtime.tasks")


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _reason(error: Exception, said: str) -> str:
    """Find the line that says why; `said` is what came on stderr."""
    # if Java never started, only stderr says why
    lines = (said if "JAVA_GATEWAY_EXITED" in str(error) else str(error)).splitlines()
    causes = [line for line in lines if "Exception: " in line] or [line for line in lines if ": " in line] or lines
    return causes[0].strip().rpartition("Exception: ")[2].rstrip(".") if causes else repr(error)
