"""The folders of a partitioned table's files, in Hive's style."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from springtide.sinks.partitions import LONGEST_NAME

_SHORTEST = 32
"""Bytes of a name that are kept even if there are many of them."""


def folder_of(values: Mapping[str, str | None], null: str) -> str:
    """Return the folder for files of a partition.

    >>> folder_of({"day": "2024-05-01", "town": "Århus"}, "null")
    'day=2024-05-01/town=%C3%85rhus/'
    """
    texts = {name: null if value is None else quote(value, safe="") for name, value in values.items()}
    return "".join(f"{quote(name, safe='')}={text}/" for name, text in texts.items())


def short_folder_of(values: Mapping[str, str | None], null: str) -> str:
    """Return the folder where nobody looks for values: names that are too long for file systems and stores are cut off, with a digest at the end."""
    longest = max(_SHORTEST, LONGEST_NAME // len(values))
    return "".join(_short(folder_of({name: value}, null)[:-1], longest) + "/" for name, value in values.items())


def _short(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: longest - 1 - len(digest)]}~{digest}"
