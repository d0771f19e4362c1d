"""A Spark session for the command line: what the JVM has to say goes to a file, not to the screen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from springtide.cli.errors import CommandError


def start_spark(master: str, name: str, log: Path, module: ModuleType | None = None) -> Any:
    """Start a Spark session; its tasks can have what `module` defines."""
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody outside this machine needs to reach it
    log.parent.mkdir(parents=True, exist_ok=True)
    with _stderr_to(log):  # the JVM keeps the stderr that it was born with
        try:
            from springtide.runtime.spark.session import session  # here: PySpark takes a second to import
            from springtide.runtime.spark.shipping import ship

            if module is not None:
                ship(module)
            spark = session(master, name=name)
            spark.sparkContext.setLogLevel("WARN")
        except Exception as error:
            raise CommandError(f"Spark did not start: {_reason(error, log)}; its log is {log}") from None
    return spark


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


def _reason(error: Exception, log: Path) -> str:
    """Find the line that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "JAVA_GATEWAY_EXITED" in str(error):  # Java never came up: only its own words help
        lines = [line.strip() for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()][-1:]
    causes = [line for line in lines if "Exception: " in line]
    said = (causes or lines or [repr(error)])[0]
    return said.rpartition("Exception: ")[2].rstrip(".")
