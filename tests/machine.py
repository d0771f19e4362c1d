"""What tests ask of the machine that they run on, which may be busy with other things: time, and a port. No pytest here."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

LONG = 300.0
"""Seconds until a test gives up on what takes a moment when nobody else is at work."""

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_BELOW = 10_000
"""As many ports below the ephemeral ones are looked at; services that people know are farther down."""


def free_port() -> int:
    """Give a port of this machine that is free, and stays so: one that the system does not hand out to others by itself."""
    for port in _others():
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            found: int = server.getsockname()[1]
            return found
    raise AssertionError("no port is free")


def _others() -> list[int]:
    """Name ports in random order, or other tests would try the same ones; where nobody says which are ephemeral, any that is free."""
    if not _EPHEMERAL.exists():
        return [0]
    first = int(_EPHEMERAL.read_text().split()[0])
    ports = range(max(1024, first - _BELOW), first)
    return random.Random().sample(ports, len(ports)) or [0]
