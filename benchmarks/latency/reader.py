"""A reader of a folder: says of each file when it could first be seen under its name. A process of its own, woken by the kernel.

python benchmarks/latency/reader.py FOLDER        each line: seconds since 1970, and the file's name
"""

import ctypes
import os
import struct
import sys
import time
from pathlib import Path

_CREATED, _MOVED_HERE = 0x100, 0x80
"""What inotify(7) calls IN_CREATE and IN_MOVED_TO."""
_HEAD = struct.Struct("iIII")


def main(folder: Path) -> None:
    """Watch a folder until somebody ends this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_CLOEXEC)
    if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(folder), _CREATED | _MOVED_HERE) < 0:
        raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
    print("watching", flush=True)
    while True:
        events, now, at = os.read(watch, 1 << 16), time.time(), 0
        while at < len(events):
            *_, size = _HEAD.unpack_from(events, at)
            at += _HEAD.size + size
            print(now, os.fsdecode(events[at - size : at].rstrip(b"\0")), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
