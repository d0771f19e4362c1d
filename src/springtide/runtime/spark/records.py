"""What Spark says about its micro-batches: its records, checked against the manifest, and its progress. Nothing here changes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from springtide.state.errors import CheckpointError
from springtide.state.manifest import Manifest
from springtide.state.names import SPARK
from springtide.state.spark_records import digest

_REMEDY = f"put the folder {SPARK} back as it was, or start with a new checkpoint; nothing was read"


def check(root: Path, own: Path, manifest: Manifest) -> None:
    """Refuse to start if Spark's records, which were brought from the checkpoint `root` to the run's own folder, are not those with which the last micro-batch was taken."""
    if manifest.batch is None:
        return
    found = digest(own, manifest.batch)
    if found is None or found != (manifest.offsets or found):
        state = "are gone" if found is None else "are of another one"
        raise CheckpointError(
            str(root),
            f"has taken Spark's micro-batches up to {manifest.batch}, but Spark's records of that one ({SPARK}/offsets) {state}",
            _REMEDY,
        )


def is_taken(root: Path, manifest: Manifest, number: int, offsets: str | None) -> bool:
    """Return whether a micro-batch is the last one that was taken: Spark repeats it when a crash came before its own commit.

    One that was taken longer ago, or one that leaves others out, is refused: Spark would forget rows, or has.
    """
    last = -1 if manifest.batch is None else manifest.batch
    if number == last + 1:
        return False
    if number == last and offsets == (manifest.offsets or offsets):
        return True
    what = "Spark begins again with" if number <= last else "Spark continues with"
    raise CheckpointError(
        str(root),
        f"has taken Spark's micro-batches up to {last}, and {what} {number}"
        if last >= 0
        else f"has taken none of Spark's micro-batches, and {what} {number}",
        _REMEDY,
    )


# ── what waits ────────────────────────────────────────────────────────────────────────────────────────────────────


def waiting(names: Sequence[str], progress: Mapping[str, Any] | None) -> dict[str, int]:
    """Return how many rows wait at each source after the last micro-batch, as far as Spark says.

    Spark lists what it reads in the order of the query; if that is more than there are sources, the first one gets it all.
    """
    told = [rows_left(source) for source in (progress or {}).get("sources", ())]
    if len(told) == len(names):
        return dict(zip(names, told, strict=True))
    return {names[0]: sum(told)} if told else {}


def rows_left(source: Mapping[str, Any]) -> int:
    """Return the rows between the end of a micro-batch and the end of its source. Offsets that count rows are those of Kafka and the like.

    >>> rows_left({"endOffset": '{"calls":{"0":5,"1":7}}', "latestOffset": '{"calls":{"0":5,"1":10,"2":4}}'})
    7
    >>> rows_left({"endOffset": {"calls": {"0": 5, "1": 7}}, "metrics": {"avgOffsetsBehindLatest": "1.5"}})
    3
    >>> rows_left({"endOffset": '{"logOffset":3}', "latestOffset": None})
    0
    """
    end, latest = _by_partition(source.get("endOffset")), _by_partition(source.get("latestOffset"))
    if latest:
        return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())
    average = (source.get("metrics") or {}).get("avgOffsetsBehindLatest", 0)
    return round(float(average) * len(end))


def _by_partition(offset: Any) -> dict[tuple[str, str], int]:
    """Read an offset of the form topic → partition → number; nothing if it has another form."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
        return {(topic, p): int(number) for topic, partitions in found.items() for p, number in partitions.items()}
    except (AttributeError, TypeError, ValueError):
        return {}
