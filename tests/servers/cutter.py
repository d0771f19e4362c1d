"""Connections that are cut half-way: all that clients and a server say goes through somebody who drops it."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Cutter:
    """Passes bytes on between clients and a server, and cuts connections after so many of them."""

    def __init__(self, target: int | Path = 0, *, cuts: int = 10, most: int = 20_000) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.target = target
        """The server: a port, or a socket in a folder."""
        self.cuts, self.most_cuts = 0, cuts
        """After so many it is enough: an answer may be longer than any connection lasts."""
        self.cutting = False
        self._most = most
        self._random = random.Random(5)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                with suppress(OSError):
                    server = self._connect()
                    for one, other in ((client, server), (server, client)):
                        threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self.target, int):
            return socket.create_connection(("127.0.0.1", self.target))
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self.target))
        return server

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        left = self._random.randrange(200, self._most)
        with suppress(OSError):
            while data := one.recv(4096):
                if self.cutting and self.cuts < self.most_cuts and len(data) >= left:
                    self.cuts += 1
                    other.sendall(data[:left])
                    break
                left -= len(data) if self.cutting else 0
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def cutter(target: int | Path = 0, *, cuts: int = 10, most: int = 20_000) -> Iterator[Cutter]:
    made = Cutter(target, cuts=cuts, most=most)
    try:
        yield made
    finally:
        made.close()


class CutterBeside:
    """One in a process of its own, which cuts from the beginning: a client may keep this interpreter busy while it waits for the server."""

    def __init__(self, target: int, *, cuts: int, most: int) -> None:
        command = [sys.executable, "-m", "tests.servers.cutter", str(target), str(cuts), str(most)]
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def end(self) -> int:
        """End it, and say how many connections it has cut."""
        if self._process.poll() is None:
            self._cuts = int(self._process.communicate("")[0])
        return self._cuts


@contextmanager
def cutter_beside(target: int, *, cuts: int = 10, most: int = 20_000) -> Iterator[CutterBeside]:
    made = CutterBeside(target, cuts=cuts, most=most)
    try:
        yield made
    finally:
        made.end()


def main(target: str, cuts: str, most: str) -> None:
    with cutter(int(target), cuts=int(cuts), most=int(most)) as made:
        made.cutting = True
        print(made.port, flush=True)
        sys.stdin.read()
        print(made.cuts)


if __name__ == "__main__":
    main(*sys.argv[1:])
