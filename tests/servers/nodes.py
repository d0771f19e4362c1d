"""Nodes on one machine: each with an address, a host name, processes and a file system of its own, on one switch. No pytest here.

    switch ──┬── store      10.213.0.11
             ├── master     10.213.0.12      each a network, mount, host name and process namespace:
             ├── worker-0   10.213.0.13      the machine's files, which it can only read, are its image;
             └── …                           /tmp, /var/tmp, /run and /dev/shm are its own

The switch is a namespace too, made by `inside`: whoever runs in it sees all nodes, and with its end all of them end. Nothing of the machine's own network is touched.
Where namespaces cannot be made, nodes are folders: addresses on loopback, and `TMPDIR` of their own. Their processes are stopped instead of being cut off.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_ALONE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_ENTER = ("--net", "--mount", "--uts", "--ipc", "--pid")
_RATE = "8mbit"
"""Of a slow link, in each direction: what a poor line to another continent has."""
_TRY = """
ip link add switch type bridge && ip link set switch up && ip link add port type veth peer name eth0 &&
ip link set port master switch && tc qdisc add dev port root tbf rate 8mbit burst 32kb latency 1s
"""


def why_not() -> str | None:
    """Return why nodes cannot be namespaces here; None if they can."""
    if missing := [program for program in ("unshare", "nsenter", "ip", "tc") if shutil.which(program) is None]:
        return f"there is no {' and no '.join(missing)} (Debian: util-linux, iproute2)"
    tried = subprocess.run([*_ALONE, "sh", "-ec", _TRY], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"the system does not let us: {tried.stderr.strip()}"


def inside(command: Sequence[str]) -> list[str]:
    """Return the command that runs another in a namespace for a switch."""
    return [*_ALONE, *command]


class Node(ABC):
    """A node, which has a network address and a place for files."""

    name: str
    address: str
    place: str
    """A folder for its files, as its own processes call it."""

    @abstractmethod
    def start(self, command: Sequence[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start a process; what it says goes to a file that this process can read."""

    @abstractmethod
    def kill(self) -> None:
        """Have the node be gone at once, with all that runs on it."""

    @abstractmethod
    def cut_off(self) -> None:
        """Have nothing come through to the node or from it."""

    @abstractmethod
    def let_back(self) -> None:
        """Have everything come through again."""

    @abstractmethod
    def slow_down(self) -> None:
        """Have everything take long that goes to the node or comes from it."""

    @abstractmethod
    def speed_up(self) -> None:
        """Have it be as fast as before."""


@contextmanager
def network(folder: Path, names: Sequence[str], *, namespaces: bool) -> Iterator[dict[str, Node]]:
    """Start nodes, with their files below a folder; all end whatever happens."""
    nodes: dict[str, Node] = {}
    try:
        if namespaces:
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "link", "add", "switch", "type", "bridge")
            _run("ip", "address", "add", "10.213.0.1/24", "dev", "switch")
            _run("ip", "link", "set", "switch", "up")
            hosts = {name: f"10.213.0.{n}" for n, name in enumerate(names, start=11)}
            nodes |= {name: Namespace(name, folder / name, hosts) for name in names}
        else:
            nodes |= {name: Folder(name, folder / name, f"127.0.0.{n}") for n, name in enumerate(names, start=11)}
        yield nodes
    finally:
        for node in nodes.values():
            node.kill()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


# ── namespaces ────────────────────────────────────────────────────────────────────────────────────────────────────


class Namespace(Node):
    """A node in namespaces of its own."""

    def __init__(self, name: str, folder: Path, hosts: dict[str, str]) -> None:
        self.name, self.address, self.place = name, hosts[name], "/tmp"
        self._port = f"to-{name}"
        folder.mkdir(parents=True)
        (folder / "hosts").write_text("".join(f"{a} {n}\n" for n, a in {"localhost": "127.0.0.1", **hosts}.items()))
        command = [*_ALONE, "--uts", "--ipc", sys.executable, "-m", "tests.servers.node", name, str(folder)]
        self._outer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._outer.stdout is not None
        if self._outer.stdout.readline() != "ready\n":
            raise RuntimeError(f"the node {name} did not start")
        (init,) = psutil.Process(self._outer.pid).children()
        self._init: int = init.pid
        _run("ip", "link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", str(self._init))
        _run("ip", "link", "set", self._port, "master", "switch", "up")
        self._ip("link", "set", "lo", "up")
        self._ip("address", "add", f"{self.address}/24", "dev", "eth0")
        self._ip("link", "set", "eth0", "up")

    def start(self, command: Sequence[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        enter = ["nsenter", "--target", str(self._init), *_ENTER, f"--wdns={os.getcwd()}"]
        with open(log, "wb") as said:
            return subprocess.Popen(
                [*enter, *command],
                env=os.environ | environment | {"TMPDIR": self.place},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,  # it must outlive what runs in the node, or nobody waits for that
            )

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._init, signal.SIGKILL)  # whose end is that of all processes of the namespace
        self._outer.wait()

    def cut_off(self) -> None:
        _run("ip", "link", "set", self._port, "down")

    def let_back(self) -> None:
        _run("ip", "link", "set", self._port, "up")

    def slow_down(self) -> None:
        slow = ("root", "tbf", "rate", _RATE, "burst", "32kb", "latency", "1s")
        _run("tc", "qdisc", "add", "dev", self._port, *slow)
        self._enter("tc", "qdisc", "add", "dev", "eth0", *slow)

    def speed_up(self) -> None:
        _run("tc", "qdisc", "delete", "dev", self._port, "root")
        self._enter("tc", "qdisc", "delete", "dev", "eth0", "root")

    def _ip(self, *arguments: str) -> None:
        self._enter("ip", *arguments)

    def _enter(self, *command: str) -> None:
        _run("nsenter", "--target", str(self._init), "--net", *command)


# ── folders ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Folder(Node):
    """Processes with a folder of their own for what they write, on an address of loopback."""

    def __init__(self, name: str, folder: Path, address: str) -> None:
        self.name, self.address, self.place = name, address, str(folder)
        self._started: list[subprocess.Popen[bytes]] = []
        self._usual = threading.Event()
        folder.mkdir(parents=True)

    def start(self, command: Sequence[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
        with open(log, "wb") as said:
            process = subprocess.Popen(
                command,
                env=os.environ | environment | {"TMPDIR": self.place},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self._started.append(process)
        return process

    def kill(self) -> None:
        self._usual.set()
        self._signal(signal.SIGSTOP)  # so that none of them starts another meanwhile
        self._signal(signal.SIGKILL)
        for process in self._started:
            process.wait()

    def cut_off(self) -> None:
        self._signal(signal.SIGSTOP)

    def let_back(self) -> None:
        self._signal(signal.SIGCONT)

    def slow_down(self) -> None:
        """Have the processes stand still for three quarters of the time."""
        self._usual.clear()

        def hinder() -> None:
            while not self._usual.wait(0.05):
                self._signal(signal.SIGSTOP)
                self._usual.wait(0.15)
                self._signal(signal.SIGCONT)

        threading.Thread(target=hinder, daemon=True).start()

    def speed_up(self) -> None:
        self._usual.set()

    def _signal(self, number: signal.Signals) -> None:
        for started in self._started:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(started.pid)
                for one in (process, *process.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        one.send_signal(number)
