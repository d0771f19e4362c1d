"""A ZooKeeper for tests: the one that Spark brings along for its own masters."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_SECONDS = 300.0


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """Start a server, and return its address; it ends with the block."""
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else Path("java")
    settings = folder / "zoo.cfg"
    server, address = _started(folder, settings, [str(java), "-Xmx128m", "-cp", str(jars), _MAIN, str(settings)])
    try:
        yield address
    finally:
        server.kill()
        server.wait()


def _started(folder: Path, settings: Path, command: list[str]) -> tuple[subprocess.Popen[bytes], str]:
    """Start it on a port that is free; another one if somebody else was faster."""
    until = time.monotonic() + _SECONDS
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings.write_text(
            f"tickTime=500\ndataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n4lw.commands.whitelist=ruok\n"
        )
        with open(folder / "zookeeper.log", "ab") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        while server.poll() is None:
            if _answers(port):
                return server, f"127.0.0.1:{port}"
            if time.monotonic() > until:
                server.kill()
                raise TimeoutError(f"ZooKeeper does not answer: see {folder / 'zookeeper.log'}")
            time.sleep(0.1)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"ruok")
            return client.recv(4) == b"imok"
    except OSError:
        return False
