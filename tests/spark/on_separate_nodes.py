"""A query with every operator on nodes that share nothing but an S3-compatible server, each of which is a node too: python -m tests.spark.on_separate_nodes play FOLDER KIND EVERY.

What is done to it: 1 → 6 instances, a worker's node is killed, the link to the store is slow, then gone for thirty seconds, another worker's node is cut off and comes back, the driver's node is killed and another
goes on, 6 → 2 instances. Who does this is a person elsewhere, who sees the store and no more. The last line says how it went.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import psutil

import springtide as st
from benchmarks.elastic.standalone import MASTER_SAYS, ROOT, SETTINGS, WORKER_SAYS, daemon, said
from springtide.query import steps
from springtide.query.errors import SpringtideError
from springtide.state.control import Command, send
from springtide.state.from_outside import from_outside
from springtide.state.manifest import Manifest
from springtide.state.stores import Store
from springtide.testing import compare
from tests.chaos.queries import INPUTS, ROWS, SCHEMA, Digest, rows
from tests.machine import LONG
from tests.servers.nodes import Node, network

WORKERS = ("worker-0", "worker-1", "worker-2")
DRIVERS = ("driver-0", "driver-1")
NODES = ("store", "master", *WORKERS, *DRIVERS)
_AWAY = 30.0
"""Seconds for which the store is gone."""
_AHEAD = 200
"""Rows that wait at most."""
_S3 = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer({address!r}, port=0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
import threading
threading.Event().wait()
"""
_NOTICED = {
    # a node that is silent is given up after so long, and a new one is tried soon
    "spark_network_timeout": "20s",
    "spark_network_timeoutInterval": "2s",
    "spark_executor_heartbeatInterval": "2s",
    "spark_shuffle_io_maxRetries": "1",
    "spark_shuffle_io_retryWait": "1s",
}


@dataclass(frozen=True)
class Bucket:
    """A bucket of a server that knows no passwords."""

    server: str

    def at(self, folder: str) -> str:
        """Return the address of a folder, with its secrets."""
        return (
            f"s3://bucket/{folder}?endpoint_override={self.server}&scheme=http&access_key=tester&secret_key=hush-hush"
        )

    def make(self) -> None:
        from pyarrow.fs import S3FileSystem

        options = {"endpoint_override": self.server, "scheme": "http", "allow_bucket_creation": True}
        S3FileSystem(access_key="tester", secret_key="hush-hush", **options).create_dir("bucket")


def query(bucket: Bucket) -> st.Query:
    """Make a query with each stateful step that there is, over two inputs that go on."""
    left, right = (
        st.source(i, st.parquet(bucket.at(i), schema=SCHEMA, follow=True), ts="ts", max_disorder="2s") for i in INPUTS
    )
    both = st.union(left, right)
    minute = st.tumbling("1m")  # in most epochs none ends: each file of rows costs the server's Python three requests
    sums = both.aggregate(by="key", window=st.sliding("2m", every="1m"), total=st.sum("x"), n=st.count(), name="sums")
    near = (pl.col("x") - pl.col("x_right")).abs() <= 20
    given = {
        "sums": sums,
        "behind": sums.aggregate(by="n", window=minute, keys=st.count(), total=st.sum("total"), name="behind"),
        "sessions": left.aggregate(by="key", window=st.session("9s"), n=st.count(), most=st.max("x"), name="sessions"),
        "last": right.aggregate(by="key", window=st.last_n(12, every=9), total=st.sum("x"), name="last"),
        "top": both.top_k(3, "key", window=minute, name="top"),
        "pairs": left.join(right, on="key", within="6s", name="pairs"),
        "near": left.theta_join(right, near, within="4s", name="near"),
        "digests": both.operator(Digest(), keys="key", name="digests"),
    }
    ends = {f"{name}-out": stream for name, stream in given.items()}
    return st.Query("everything", *(s.to(st.parquet_sink(bucket.at(end)), name=end) for end, s in ends.items()))


# ── the driver ────────────────────────────────────────────────────────────────────────────────────────────────────


def drive(master: str, server: str, every: str) -> None:
    """Run the query until somebody stops it."""
    own = os.environ["SPARK_LOCAL_IP"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    settings = {"spark_driver_host": own, "spark_driver_bindAddress": own, "spark_executor_cores": "2"}
    settings |= {"spark_executorEnv_PYTHONPATH": path}
    bucket = Bucket(server)
    run = query(bucket).start(
        st.spark_session(master, **SETTINGS | _NOTICED | settings),
        checkpoint=bucket.at("ckpt"),
        instances=None if from_outside(bucket.at("ckpt")).latest() else 1,
        buckets=16,
        durability=every,
        patience="5m",
    )
    try:
        run.wait()
    finally:
        print(json.dumps([note for _, note in run.events()]), flush=True)


# ── what is done to it ────────────────────────────────────────────────────────────────────────────────────────────


class Play:
    """The nodes with the query on them, and what a person elsewhere sees of it."""

    def __init__(self, folder: Path, nodes: dict[str, Node], every: str) -> None:
        """Start the server, the cluster and the input."""
        self.folder, self.nodes, self.every = folder, nodes, every
        store, master = nodes["store"], nodes["master"]
        self._start(store, [sys.executable, "-c", _S3.format(address=store.address)])
        port = said(self._log(store), r"port (\d+)")
        self.bucket = Bucket(f"{store.address}:{port}")
        self.bucket.make()
        self.checkpoint = from_outside(self.bucket.at("ckpt"))
        self._start_daemon(master, "master.Master")
        self.master = said(self._log(master), MASTER_SAYS)
        for name in WORKERS:
            limits = ("--cores", "2", "--memory", "1g", "--work-dir", f"{nodes[name].place}/work")
            self._start_daemon(nodes[name], "worker.Worker", *limits, self.master)
        for name in WORKERS:
            said(self._log(nodes[name]), WORKER_SAYS)
        self.driver: Any = None
        self.manifest: Manifest | None = None
        self.files, self.fed = 0, threading.Event()
        threading.Thread(target=self._feed_on, daemon=True).start()

    def drive(self, name: str) -> None:
        """Start the driver on a node."""
        node = self.nodes[name]
        command = [
            sys.executable,
            "-m",
            "tests.spark.on_separate_nodes",
            "drive",
            self.master,
            self.bucket.server,
            self.every,
        ]
        self.driver = self._start(node, command, {"SPARK_LOCAL_IP": node.address})
        self.driven = self._log(node)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait, and say how long."""
        began = time.monotonic()
        while not condition():
            assert self.driver.poll() is None, f"the query ended before {what}: {self.driven.read_text()[-5000:]}"
            assert time.monotonic() < began + 2 * LONG, f"not in time: {what}; {self.driven.read_text()[-5000:]}"
            time.sleep(0.3)
        print(f"{time.monotonic() - began:5.1f} s: {what}, epoch {self.epoch()}", file=sys.stderr, flush=True)

    def epoch(self) -> int:
        """Return the newest epoch that the store has."""
        with suppress(SpringtideError, OSError):
            self.manifest = self.checkpoint.latest() or self.manifest
        return -1 if self.manifest is None else self.manifest.epoch

    def epochs(self, what: str, count: int = 1) -> None:
        """Wait for so many epochs more. The first of them may have begun before."""
        last = self.epoch() + 1 + count
        self.until(f"epochs {what}", lambda: self.epoch() >= last)

    def accepted(self) -> int:
        """Return the rows that were taken."""
        return sum(s.accepted for s in self.manifest.sources.values()) if self.manifest else 0

    def scale(self, instances: int) -> None:
        """Give so many instances to all steps that have keys."""
        assert self.manifest is not None
        names = [name for name, owners in self.manifest.maps.items() if len(owners.owners) > 1]
        for name in names:
            send(self.checkpoint.root, Command("scale", {"step": name, "instances": instances}))

        def done() -> bool:
            with suppress(SpringtideError):
                self.checkpoint.in_use()  # which is when commands are brought to the store
            return self.epoch() >= 0 and all(self.manifest.maps[n].instances == instances for n in names)

        self.until(f"{instances} instances of {len(names)} steps", done)

    def executors(self, node: str) -> set[int]:
        """Return the processes of the executors on a node."""
        wanted = {"--executor-id", self.nodes[node].address}
        return {p.pid for p in psutil.process_iter(["cmdline"]) if wanted <= {*(p.info["cmdline"] or ())}}

    def is_missed(self, node: str) -> bool:
        """Return whether the master has given up a node from which it hears nothing."""
        lines = self._log(self.nodes["master"]).read_text().splitlines()
        return any("no heartbeat" in line and f"-{self.nodes[node].address}-" in line for line in lines)

    def finish(self) -> dict[str, Any]:
        """Feed no more, take everything in, and compare with the reference."""
        self.fed.set()
        self.until("all is read", lambda: self.epoch() >= 0 and self.accepted() == 2 * self.files * ROWS)
        send(self.checkpoint.root, Command("stop"))
        while self.driver.poll() is None:
            self.checkpoint.in_use()
            time.sleep(0.3)
        assert self.driver.returncode == 0, self.driven.read_text()[-5000:]
        made = query(self.bucket)
        expected = made.run_reference({i: rows(i, 0, self.files * ROWS) for i in INPUTS}, bounded=False)
        results = {}
        for name in made.of_kind(steps.Sink):
            store = Store.at(self.bucket.at(name))
            found = [pl.read_parquet(io.BytesIO(store.read(f))) for f in store.list() if f.endswith(".parquet")]
            compare(pl.concat(found), expected.rows(name))
            results[name] = expected.rows(name).height
        return {"rows": 2 * self.files * ROWS, "epochs": self.epoch() + 1, "results": results}

    def notes(self) -> list[str]:
        """Return what the last driver noted, once it has ended."""
        found: list[str] = json.loads(self.driven.read_text().splitlines()[-1])
        return found

    def _feed_on(self) -> None:
        stores = {which: Store.at(self.bucket.at(which)) for which in INPUTS}
        while not self.fed.is_set():
            if 2 * self.files * ROWS - self.accepted() < _AHEAD:
                for which, store in stores.items():
                    data = io.BytesIO()
                    rows(which, self.files * ROWS, ROWS).write_parquet(data)
                    while True:
                        with suppress(SpringtideError, OSError):  # the store may be away
                            store.write(f"{self.files:06d}.parquet", data.getvalue())
                            break
                self.files += 1
            self.fed.wait(0.5)

    def _log(self, node: Node) -> Path:
        return self.folder / f"{node.name}.log"

    def _start(self, node: Node, command: Sequence[str], environment: Mapping[str, str] = {}) -> Any:
        python = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return node.start(command, self._log(node), PYTHONPATH=python, SPARK_LOCAL_DIRS=node.place, **environment)

    def _start_daemon(self, node: Node, what: str, *more: str) -> None:
        command, environment = daemon(node.address, what, *more)
        options = f"{environment['SPARK_DAEMON_JAVA_OPTS']} -Dspark.worker.timeout=15"
        self._start(node, command, environment | {"SPARK_DAEMON_JAVA_OPTS": options})


def play(folder: Path, kind: str, every: str) -> None:
    with network(folder / "nodes", NODES, namespaces=kind == "namespaces") as nodes:
        it = Play(folder, nodes, every)
        it.drive("driver-0")
        it.epochs("with one instance each")
        it.scale(6)
        it.epochs("with six")

        nodes["worker-2"].kill()
        it.epochs("without a node")

        nodes["store"].slow_down()
        it.epochs("over a slow link to the store")
        nodes["store"].cut_off()
        time.sleep(_AWAY)
        nodes["store"].let_back()
        nodes["store"].speed_up()
        it.epochs("since the store is back")

        nodes["worker-1"].cut_off()
        it.epochs("without a node that is cut off", 2)
        it.until("the master misses it", lambda: it.is_missed("worker-1"))  # else what runs there may just go on
        before = it.executors("worker-1")
        nodes["worker-1"].let_back()
        it.until("the node that was cut off works again", lambda: bool(it.executors("worker-1") - before))
        it.epochs("with it")

        nodes["driver-0"].kill()
        it.drive("driver-1")
        it.epochs("with the driver on another node")
        it.scale(2)
        it.epochs("with two instances each")
        told = it.finish()
        print(json.dumps(told | {"notes": it.notes()}))


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        drive(*sys.argv[2:])
    else:
        play(Path(sys.argv[2]), *sys.argv[3:])
