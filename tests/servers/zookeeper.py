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


class ZooKeeper:
    """One server, which can be stopped and started again at the same address, with what it had."""

    def __init__(self, folder: Path) -> None:
        """Start it on a port that is free; another one if somebody else was faster."""
        self._folder, self._settings = folder, folder / "zoo.cfg"
        while True:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._port = free.getsockname()[1]
            self._settings.write_text(
                f"tickTime=500\ndataDir={folder / 'data'}\nclientPort={self._port}\nclientPortAddress=127.0.0.1\n"
                "admin.enableServer=false\n4lw.commands.whitelist=ruok\n"
            )
            if self._started():
                return

    @property
    def address(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        """Start it again."""
        while not self._started():  # the port is not free yet
            time.sleep(0.1)

    def _started(self) -> bool:
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else Path("java")
        command = [str(java), "-Xmx128m", "-cp", str(jars), _MAIN, str(self._settings)]
        until = time.monotonic() + _SECONDS
        with open(self._folder / "zookeeper.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while self._process.poll() is None:
            if _answers(self._port):
                return True
            if time.monotonic() > until:
                self.stop()
                raise TimeoutError(f"ZooKeeper does not answer: see {self._folder / 'zookeeper.log'}")
            time.sleep(0.1)
        return False


@contextmanager
def zookeeper(folder: Path) -> Iterator[ZooKeeper]:
    """Start a server; it ends with the block."""
    server = ZooKeeper(folder)
    try:
        yield server
    finally:
        server.stop()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"ruok")
            return client.recv(4) == b"imok"
    except OSError:
        return False
