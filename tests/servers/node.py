"""The first process of a node (`tests.servers.nodes`): python -m tests.servers.node NAME FOLDER, in namespaces of its own.

It makes the machine's files readable and no more, puts the node's own in the places that everybody writes to, says `ready`, and waits for processes that nobody else waits for.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_OWN = ("/var/tmp", "/tmp")  # the folder itself is often below /tmp, which is therefore the last
_IN_MEMORY = ("/dev/shm", "/run")
_SPECIAL = ("/proc", "/sys", "/dev")


def main(name: str, folder: Path) -> None:
    socket.sethostname(name)
    image = _mounts()
    (folder / "nobody").touch()
    _mount("--bind", str(folder / "hosts"), "/etc/hosts")
    _mount("--bind", str(folder / "nobody"), "/etc/resolv.conf")  # names are those of the nodes
    for place in _IN_MEMORY:
        _mount("-t", "tmpfs", "tmpfs", place)
    for place in _OWN:
        own = folder / place.removeprefix("/").replace("/", "-")
        own.mkdir()
        own.chmod(0o1777)
        for program in _programs():
            if program.is_relative_to(place):  # a checkout may be below /tmp
                seen = own / program.relative_to(place)
                seen.mkdir(parents=True, exist_ok=True)
                _mount("--bind", str(program), str(seen))
                image.append(str(program))
        _mount("--rbind", str(own), place)
    for point in image:
        with suppress(subprocess.CalledProcessError):  # what cannot be changed is no place for files
            _mount("-o", "remount,bind,ro", point)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    print("ready", flush=True)
    while True:
        signal.sigwait([signal.SIGCHLD])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _programs() -> list[Path]:
    """Return what a node runs, wherever it is: the checkout and the interpreter."""
    return [Path.cwd(), Path(sys.prefix), Path(sys.base_prefix)]


def _mounts() -> list[str]:
    """Return where file systems are mounted, but for those that are no files, and those that the node has its own in place of."""
    points = [
        line.split()[4].encode().decode("unicode_escape")
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    return [
        point for point in dict.fromkeys(points) if not point.startswith(_SPECIAL) and point not in _OWN + _IN_MEMORY
    ]


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
