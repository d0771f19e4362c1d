"""Drivers in processes of their own, and how to kill what belongs to them. No pytest here: the chaos runner uses it too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

ROOT = Path(__file__).parents[2]
_PATH = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))


def start_child(
    what: str, *arguments: object, log: Path | None = None, python: str = sys.executable, **environment: str
) -> subprocess.Popen[str]:
    """Start a query in a driver of its own, in a process group of its own; what it says goes to a pipe, or is added to a log.

    The JVM holds the pipe as long as it lives: who does not want to wait for it takes a log.
    """
    command = [python, "-m", "tests.spark.child", what, *map(str, arguments)]
    if log is not None:
        with open(log, "a", encoding="utf-8") as file:
            return _start(command, environment, file)
    return _start(command, environment, subprocess.PIPE)


def _start(command: list[str], environment: dict[str, str], stderr: IO[str] | int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": _PATH} | environment,  # workers import what the driver imports
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def wait_for_the_group(child: subprocess.Popen[str]) -> None:
    """Wait until the JVM and the workers are gone too: Spark ends them when their driver is."""
    for _ in range(300):
        try:
            os.killpg(child.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(child.pid, signal.SIGKILL)
    raise AssertionError("the dead driver's JVM is still there after 30 s")


def end_the_group(child: subprocess.Popen[str]) -> None:
    """Kill what is left of a driver, its JVM and its workers."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def jvm_of(driver: int) -> psutil.Process | None:
    """Give the JVM of a driver."""
    return next((p for p in _below(driver) if _name(p) == "java"), None)


def workers_of(driver: int) -> list[psutil.Process]:
    """Give the Python workers that run tasks in local mode: the children of Spark's daemon, not the daemon itself."""
    daemons = {p.pid for p in _below(driver) if "pyspark.daemon" in _command(p) and _parent_name(p) == "java"}
    return [p for p in _below(driver) if _parent(p) in daemons]


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return -1


def _parent_name(process: psutil.Process) -> str:
    try:
        parent = process.parent()
    except psutil.NoSuchProcess:
        parent = None
    return "" if parent is None else _name(parent)
