"""A standalone Spark cluster on the loopback of this machine, from the installed PySpark; for benchmarks and tests."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that start quickly and have little to do."""
MASTER_SAYS, WORKER_SAYS = r"Starting Spark master at (spark://\S+)", r"Successfully registered with master (\S+)"

SETTINGS = {
    "spark_driver_host": "127.0.0.1",
    "spark_driver_bindAddress": "127.0.0.1",
    "spark_driver_memory": "512m",
    "spark_driver_extraJavaOptions": SMALL,
    "spark_executor_cores": "1",
    "spark_executor_memory": "512m",
    "spark_executor_extraJavaOptions": SMALL,
    "spark_executorEnv_PYTHONPATH": str(ROOT / "src"),
}
"""For `st.spark_session`: a driver that stays on loopback, and small executors of one core."""


def executors_of(application: str) -> list[psutil.Process]:
    """Give the processes of an application's executors, the oldest first."""
    found = [
        process
        for process in psutil.process_iter(["cmdline", "create_time"])
        if application in (process.info["cmdline"] or ()) and "--executor-id" in process.info["cmdline"]
    ]
    return sorted(found, key=lambda process: process.info["create_time"])


@contextmanager
def standalone(
    folder: Path,
    workers: int = 2,
    cores: int = 2,
    environment: Callable[[int], dict[str, str]] = lambda worker: {},
    memory: str | None = None,
) -> Iterator[str]:
    """Start a master and workers, each on a host of its own (127.0.0.2, 127.0.0.3, …), and give the master's address.

    `environment` is what the executors of a worker have in theirs; `memory` is what a worker has for them, 1g a core if not given.

    All end whatever happens. Their logs and their executors' folders lie in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(folder / "master.log", "127.0.0.1", "master.Master"))
        master = said(folder / "master.log", MASTER_SAYS)
        for n in range(workers):
            log = folder / f"worker-{n}.log"
            limits = [
                "--cores",
                str(cores),
                "--memory",
                memory or f"{cores}g",
                "--work-dir",
                str(folder / f"work-{n}"),
                master,
            ]
            started.append(_start(log, f"127.0.0.{n + 2}", "worker.Worker", *limits, **environment(n)))
        for n in range(workers):
            said(folder / f"worker-{n}.log", WORKER_SAYS)
        yield master
    finally:
        _end(started)


def _start(log: Path, host: str, what: str, *more: str, **variables: str) -> subprocess.Popen[bytes]:
    command, environment = daemon(host, what, *more)
    with open(log, "wb") as file:
        environment = os.environ | environment | variables
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def daemon(host: str, what: str, *more: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a master (`master.Master`) or a worker (`worker.Worker`) on a host."""
    environment = {
        "SPARK_LOCAL_IP": host,  # also where the web pages listen
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        "SPARK_HOME": str(SPARK),
    }
    command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}"]
    return [*command, "--host", host, "--port", "0", "--webui-port", "0", *more], environment


def said(log: Path, pattern: str, seconds: float = 180) -> str:
    """Wait until a log says something, and return the first group of it."""
    end = time.monotonic() + seconds
    while (found := re.search(pattern, log.read_text("utf-8", errors="replace"))) is None:
        if time.monotonic() > end:
            raise TimeoutError(
                f"{log.name} does not say {pattern!r}: {log.read_text('utf-8', errors='replace')[-2000:]}"
            )
        time.sleep(0.05)
    return found[1]


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """End everything that was started, and what that started: workers first, so that they start nothing any more."""
    everything = []
    for process in reversed(started):
        try:
            everything += [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        except psutil.NoSuchProcess:
            continue
        process.terminate()
    _, alive = psutil.wait_procs(everything, timeout=5)
    for left in alive:
        left.kill()
    for process in started:
        process.wait(10)
