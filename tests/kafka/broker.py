"""A Kafka broker of its own: one process that is broker and controller (KRaft), on the loopback, with everything in one folder.

It can be stopped, killed, paused and started again on the same port, as brokers of others are.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka import jars

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "num.network.threads": 2,
    "num.io.threads": 2,
    "num.replica.fetchers": 1,
    "background.threads": 2,
    "num.recovery.threads.per.data.dir": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
    "file.delete.delay.ms": 100,
    "log.flush.interval.messages": 9223372036854775807,
}
_JAVA = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
_UP = 300.0
"""Seconds in which a broker is up, on the slowest machine."""


def absent() -> str | None:
    """Why no broker can be had; None if one can."""
    if jars.missing():
        return "no Kafka broker here: run scripts/setup.sh kafka"
    return None if _java() else "no Java for a Kafka broker: run scripts/setup.sh java"


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else shutil.which("java")


@dataclass(frozen=True)
class Lock:
    """Who gets in at a broker's second door: its certificate with the key, and a user."""

    certificate: Path
    user: str
    password: str


@contextmanager
def broker(
    heap: str | None = None,
    lock: Lock | None = None,
    between: Any = None,
    beside: Broker | None = None,
    **settings: Any,
) -> Iterator[Broker]:
    """A broker that is up, in a folder that is removed at the end.

    Who is `between` has a port that clients are sent to, and a target. A broker `beside` another is the second of its cluster.
    """
    with tempfile.TemporaryDirectory(prefix="springtide-kafka-") as folder:
        server = Broker(Path(folder), settings, [f"-Xmx{heap}"] if heap else [], lock, between, beside)
        try:
            server.start()
            yield server
        finally:
            server.kill()


class Broker:
    """The broker's process and its folder."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any] | None = None,
        java: Sequence[str] = (),
        lock: Lock | None = None,
        between: Any = None,
        beside: Broker | None = None,
    ) -> None:
        self._folder, self._settings, self._options = folder, settings or {}, [*_JAVA, *java]
        self._process: subprocess.Popen[bytes] | None = None
        self._port = self._locked_port = self._controller = 0
        self._lock, self._between, self._beside = lock, between, beside

    @property
    def locked(self) -> str:
        """Where clients find it that have what it takes: TLS, and a password."""
        return f"localhost:{self._locked_port}"

    @property
    def servers(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and wait until it answers. The first start chooses the ports, and others if somebody was faster."""
        for attempt in range(5):
            with _alone():
                if not self._port:
                    self._format()
                self._launch()
                if self._is_up():
                    return
            if attempt == 4 or (self._folder / "started").exists():
                break
            self._port = 0
        raise RuntimeError(f"the broker did not start: {(self._folder / 'out').read_text('utf-8', 'replace')[-3000:]}")

    def stop(self) -> None:
        """Ask it to end, and wait for it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it answer nobody; connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _format(self) -> None:
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        self._port, self._controller, self._locked_port = _free_ports(3)
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "log.dirs": self._folder / "data",
        }
        if self._beside is not None:
            listeners |= {
                "process.roles": "broker",
                "node.id": 2,
                "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
                "controller.quorum.voters": f"1@127.0.0.1:{self._beside._controller}",
            }
        if self._between is not None:
            self._between.target = self._port
            listeners["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{self._between.port}"
        settings = _SETTINGS | listeners | self._door(listeners) | self._settings
        (self._folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in settings.items()), "utf-8")
        subprocess.run(
            [
                *self._command("kafka.tools.StorageTool"),
                "format",
                "-t",
                "c3ByaW5ndGlkZS10ZXN0cw",
                "-c",
                "server.properties",
                *(["--add-scram", self._scram()] if self._lock is not None else []),
            ],
            cwd=self._folder,
            check=True,
            capture_output=True,
        )

    def _door(self, listeners: dict[str, Any]) -> dict[str, Any]:
        """A second door, with TLS, where passwords are asked for: as they are, or by SCRAM."""
        if self._lock is None:
            return {}
        door, module = f"SASL_SSL://localhost:{self._locked_port}", "org.apache.kafka.common.security"
        user, password = self._lock.user, self._lock.password
        plain = f'{module}.plain.PlainLoginModule required user_{user}="{password}";'
        return {
            "listeners": f"{listeners['listeners']},{door}",
            "advertised.listeners": f"{listeners['advertised.listeners']},{door}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._lock.certificate,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        }

    def _scram(self) -> str:
        assert self._lock is not None
        return f"SCRAM-SHA-512=[name={self._lock.user},password={self._lock.password}]"

    def _launch(self) -> None:
        with (self._folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [*self._command("kafka.Kafka"), "server.properties"],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def _command(self, main: str) -> list[str]:
        java = _java()
        assert java is not None
        return [java, *self._options, "-cp", str(jars.FOLDER / "*"), main]

    def _is_up(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        assert self._process is not None
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0, "reconnect.backoff.max.ms": 200})
        until = time.monotonic() + _UP
        while time.monotonic() < until and self._process.poll() is None:
            try:
                if admin.list_topics(timeout=0.5).brokers:
                    (self._folder / "started").touch()
                    return True
            except KafkaException:
                time.sleep(0.05)
        self.kill()
        return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait()


class Topics:
    """What tests do with the topics of a broker."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def new(self, name: str = "", partitions: int = 1, replicas: int = 1, **config: Any) -> str:
        """Make a topic, and say its name."""
        from confluent_kafka.admin import NewTopic

        name = name or f"t{uuid.uuid4().hex[:8]}"
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(30)
        self._wait(name, partitions)
        return name

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)
        self._wait(name, partitions)

    def change(self, name: str, **config: str) -> None:
        """Change settings of a topic."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def _wait(self, name: str, partitions: int) -> None:
        """Wait until somebody leads each partition."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        while True:
            asked = {TopicPartition(name, n): OffsetSpec.latest() for n in range(partitions)}
            self.admin.list_topics(name, timeout=10)  # else it goes on with the partitions that it remembers
            try:
                for answer in self.admin.list_offsets(asked).values():
                    answer.result(30)
            except KafkaException:
                time.sleep(0.02)
            else:
                return

    def remove(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([name])[name].result(30)
        while name in self.admin.list_topics(timeout=10).topics:
            time.sleep(0.02)

    def leaders(self, name: str) -> list[int]:
        """Say which broker leads each partition; -1: none does."""
        found = self.admin.list_topics(name, timeout=10).topics[name].partitions
        return [found[number].leader for number in sorted(found)]

    def cut(self, name: str, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        place = TopicPartition(name, partition, before)
        self.admin.delete_records([place])[place].result(30)

    def put(self, name: str, values: Sequence[bytes | None], partition: int = 0, **more: Any) -> None:
        """Write records to a partition, one after the other; `more` is for each, or a list with one for each."""
        producer = self.producer()
        for i, value in enumerate(values):
            own = {key: v[i] if isinstance(v, list) and key != "headers" else v for key, v in more.items()}
            producer.produce(name, value, partition=partition, **own)
        assert producer.flush(30) == 0

    def producer(self, **config: Any) -> Any:
        """A producer."""
        from confluent_kafka import Producer

        settings = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 5} | settings)

    def get(self, name: str, partition: int | None = None) -> list[Any]:
        """Read all committed records of a topic that are there now, partition after partition."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        settings = {"bootstrap.servers": self.servers, "group.id": "tests", "enable.auto.commit": False, "log_level": 0}
        with closing(
            Consumer(settings | {"enable.partition.eof": True, "isolation.level": "read_committed"})
        ) as reader:
            there = self.admin.list_topics(name, timeout=10).topics[name].partitions
            found: list[Any] = []
            for number in sorted(there) if partition is None else [partition]:
                reader.assign([TopicPartition(name, number, OFFSET_BEGINNING)])
                while True:
                    message = reader.poll(30)
                    assert message is not None, "the broker does not answer"
                    if message.error() is None:
                        found.append(message)
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        break
            return found


@contextmanager
def _alone() -> Iterator[None]:
    """Start one broker at a time, so that ports that were free still are."""
    with open(Path(tempfile.gettempdir()) / "springtide-kafka.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
