"""JSON that others may have written, damaged or forged: whatever is wrong with it is a `ValueError` that says so."""

from __future__ import annotations

import json
from typing import Any


def parsed(data: bytes | str) -> Any:
    """Read JSON.

    >>> parsed(b"[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
