"""Flink in one JVM: its jars from Maven Central by their checksums (`jars.lock`), our programs on it compiled here, a process that runs them one by one.

What Flink needs of Hadoop, a logger and Zstandard are the jars that PySpark has brought along. `jars.lock` was made of what Ivy, which PySpark ships, resolves
for flink-clients, flink-connector-files, flink-statebackend-rocksdb, flink-table-planner-loader, flink-table-runtime, flink-table-api-java-uber and
flink-sql-parquet.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.measure import DATA, say
from benchmarks.sides import Worker
from tests.kafka import jars

VERSION = "2.3.0"
"""The newest stable one."""
LOCK = Path(__file__).with_name("jars.lock")
SOURCES = Path(__file__).with_name("java")
FOLDER = Path(sys.prefix) / f"flink-{VERSION}"
_FROM_SPARK = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "log4j-slf4j2",
    "log4j-api",
    "log4j-core",
    "zstd-jni",
)
_HEAP = "4g"
_OPENED = ("java.lang", "java.lang.invoke", "java.math", "java.net", "java.nio", "java.text", "java.time", "java.util")
_OPENED_MORE = ("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch")


class TooLong(Exception):
    """A job was ended because it took too long."""


class Flink:
    """A JVM with a Flink cluster in it, started when it is first needed, and again after a job that was ended."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._classes, self._ended = compiled(), False

    @property
    def has_ended(self) -> bool:
        """Whether a job was ended, and nothing has run since."""
        return self._worker is None and self._ended

    def run(self, folder: Path, longest: float, **task: Any) -> float:
        """Run a job, with its output and checkpoints below a folder; give its seconds."""
        if self._worker is None:
            say("starting Flink")
            self._worker = Worker(command(self._classes, "peers.Peers"))
        ended = threading.Event()

        def end() -> None:
            ended.set()
            if self._worker is not None:
                self._worker.kill()

        limit = threading.Timer(longest, end)
        limit.start()
        try:
            places = {"out": str(folder / "out"), "checkpoints": str(folder / "checkpoints")}
            answer = self._worker.run({**task, **places})
        except (RuntimeError, BrokenPipeError) as error:
            self._worker = None
            if ended.is_set():
                self._ended = True
                raise TooLong from error
            raise
        finally:
            limit.cancel()
        if "error" in answer:
            raise RuntimeError(f"Flink, {task}: {answer['error']}; see what it said above")
        return float(answer["seconds"])

    def stop(self) -> None:
        """Let the JVM end."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


def command(classes: Path, program: str) -> list[str]:
    """Return the command that starts one of our programs, which are in a folder of classes."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in (*_OPENED, *_OPENED_MORE)]
    path = os.pathsep.join([str(classes), *_class_path()])
    return [_java("java"), f"-Xms{_HEAP}", f"-Xmx{_HEAP}", *opened, "-cp", path, program]


def absent() -> str | None:
    """Say why Flink cannot be run here; None if it can. Gets its jars if they are not there."""
    if shutil.which(_java("javac")) is None:
        return "there is no Java compiler: install a JDK (Debian: openjdk-17-jdk-headless or newer), or point JAVA_HOME at one"
    if todo := jars.missing(LOCK, FOLDER):
        say(f"getting Flink {VERSION} ({len(todo)} jars, 200 MB)")
        try:
            jars.fetch_all(todo, FOLDER)
        except OSError as error:
            return f"Flink's jars cannot be had from Maven Central: {error}"
    return None


def _java(tool: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/{tool}" if home else tool


def _class_path() -> list[str]:
    from_spark = sorted(
        str(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar") if jar.name.startswith(_FROM_SPARK)
    )
    return [*(str(FOLDER / Path(path).name) for path, _ in jars.wanted(LOCK)), *from_spark]


def compiled() -> Path:
    """Compile our programs, unless that was done before; give the folder with the classes."""
    sources = sorted(SOURCES.rglob("*.java"))
    content = b"".join(source.read_bytes() for source in sources) + VERSION.encode()
    folder = DATA / f"flink-classes-{hashlib.sha256(content).hexdigest()[:16]}"
    if not folder.exists():
        say("compiling the programs for Flink")
        part = folder.with_suffix(".partial")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        command = [_java("javac"), "-nowarn", "-d", str(part), "-cp", os.pathsep.join(_class_path())]
        subprocess.run([*command, *map(str, sources)], check=True)
        part.rename(folder)
    return folder
