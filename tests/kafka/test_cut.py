"""Connections that are cut in the middle of an answer: all that clients and the broker say goes through somebody who drops it."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl
import pytest

import springtide as st
from springtide.runtime import inprocess
from springtide.runtime.engine import Options
from springtide.topics import records
from tests.kafka.broker import Topics, absent, broker

_CUTS = 10
"""After so many it is enough: an answer may be longer than any connection lasts."""


class Cutter:
    """Passes bytes on between clients and a broker, and cuts connections after so many of them."""

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.target = 0
        self.cuts = 0
        self.cutting = False
        self._random = random.Random(5)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                with suppress(OSError):
                    server = socket.create_connection(("127.0.0.1", self.target))
                    for one, other in ((client, server), (server, client)):
                        threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        left = self._random.randrange(200, 20_000)
        with suppress(OSError):
            while data := one.recv(4096):
                if self.cutting and self.cuts < _CUTS and len(data) >= left:
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
def cutter() -> Iterator[Cutter]:
    made = Cutter()
    try:
        yield made
    finally:
        made.close()


def test_connections_are_cut_half_way(tmp_path: Path) -> None:
    """Rows are written once each, whichever requests and answers are cut off, of the source and of the sink."""
    if (why := absent()) is not None:
        pytest.skip(why)
    with cutter() as between, broker(between=between) as server:
        topics = Topics(server.servers)
        source, out = topics.new(partitions=2), topics.new()
        for p in range(2):
            rows = [{"n": 500 * p + i, "ts": f"2024-05-01T00:{i // 60:02d}:{i % 60:02d}Z"} for i in range(500)]
            topics.put(source, [json.dumps(row).encode() for row in rows], p)
        schema = {"n": pl.Int64, "ts": st.TIME}
        calls = st.source("calls", st.kafka(topics.servers, source, schema=schema, end="now"), ts="ts")
        query = st.Query("cut", calls.to(st.kafka_sink(topics.servers, out), name="out"))
        between.cutting = True
        inprocess.run(query.plan(), tmp_path / "ckpt", Options(2, rows_per_epoch=250, patience=300))
        between.cutting = False
        found = sorted(json.loads(m.value())["n"] for m in Topics(server.servers).get(out))
        assert found == list(range(1000))
        assert between.cuts == _CUTS
        records.forget()
