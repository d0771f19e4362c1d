"""Files that others may have written, damaged or forged: whatever is wrong with one is an `OSError` or a `ValueError` that says so."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

LONGEST = 1 << 30
"""The most bytes of a file that is read as a whole."""


class NewerFormat(ValueError):
    """A part of a checkpoint that another version of Springtide wrote."""


def parsed(data: bytes | str) -> Any:
    """Read JSON.

    >>> parsed(b'"\\\\ud83d\\\\ude00"')
    '😀'
    >>> parsed(b'"\\\\ud83d"')
    Traceback (most recent call last):
    UnicodeEncodeError: 'utf-8' codec can't encode character '\\ud83d' in position 1: surrogates not allowed
    >>> parsed(b"[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    try:
        found = json.loads(data)
        escaped = b"\\ud" if isinstance(data, bytes) else "\\ud"
        if escaped in data.lower():  # type: ignore[operator]  # half a character, perhaps, which no file can be named by
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def content(path: Path, most: int = LONGEST, *, follow: bool = True) -> bytes:
    """Read a file, and only a real one: no folder, no pipe to wait for, no endless device; without `follow`, no link either."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return data


def is_for_good(error: OSError) -> bool:
    """Return whether waiting will not help to read a file: it is not a file, or we may not read it."""
    return error.errno in (
        errno.EISDIR,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.EINVAL,
        errno.ELOOP,
        errno.ENXIO,
    )
