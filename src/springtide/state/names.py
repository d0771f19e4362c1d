"""The names of a checkpoint: every path in it is made here, and nowhere else. They are the same in a folder, in an object store, in a cache and in shared memory.

Numbers of epochs have nine digits, so that names sort as epochs do.
"""

from __future__ import annotations

import re

from springtide.query.ids import EpochNumber, InstanceId
from springtide.query.types import END_OF_TIME

MARKER = "springtide.json"
"""What makes a place a checkpoint; written last."""
LOCK = "lock"
MANIFESTS = "manifests"
STATE = "state"
LEDGERS = f"{STATE}/files"
"""Which files sources have read, if there are too many for a manifest."""
BUFFER = "buffer"
OUTBOX = "outbox"
PUBLISHED = "published"
SAVEPOINTS = "savepoints"
CONTROL = "control"
ANSWER = ".result"
"""How the name of the answer to a command ends."""
RUNNING = "running"
REPLICA = "replica"
"""The group of replicas that a checkpoint takes part in."""
HISTORY = "history"
SPARK = "spark"
SPARK_RUNS = "spark-runs"
"""Where Spark writes during a run that has it read something: a folder for each run."""
SPARK_LOG = "logs/spark.log"

PENDING = "pending"
"""In a cache: marks for what is on its way to the store."""
PIECES = "pieces"
"""In a cache: parts of segments, where a node needs only some buckets."""

SEGMENTS = "*/*.arrow"
"""What segments are called below `STATE`."""


def numbered(epoch: int) -> str:
    """Return how the number of an epoch is written.

    >>> numbered(7)
    '000000007'
    """
    return f"{epoch:09d}"


def manifest(epoch: int, generation: int = 1) -> str:
    """Return the slot of a record in the log: what the run of a generation did about an epoch, or who took over instead.

    >>> manifest(7), manifest(7, 2)
    ('manifests/000000007', 'manifests/000000007.2')
    """
    return f"{MANIFESTS}/{numbered(epoch)}" + (f".{generation}" if generation > 1 else "")


def forgotten(generation: int) -> str:
    """Return the name of the note up to which epoch the run of a generation has forgotten records of its own.

    >>> forgotten(2)
    'manifests/forgotten.2'
    """
    return f"{MANIFESTS}/forgotten.{generation}"


def ended(generation: int) -> str:
    """Return the name of the note which epoch was the last of a generation, made by a later run that forgets its records."""
    return f"{MANIFESTS}/ended.{generation}"


def segment(subquery: str, epoch: EpochNumber, instance: InstanceId, kind: str, attempt: str) -> str:
    """Return the name of a segment; every attempt of a task has files of its own.

    >>> segment("sums", 7, 0, "panes", "1a2b")
    'state/sums/000000007-0-panes-1a2b.arrow'
    """
    return f"{STATE}/{subquery}/{numbered(epoch)}-{instance}-{kind}-{attempt}.arrow"


def epoch_of(name: str) -> int:
    """Return the epoch that wrote a segment, as the name of its file says; any other name counts as an epoch that never ends.

    >>> epoch_of("000000007-0-panes-1a2b.arrow")
    7
    """
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else END_OF_TIME


def outbox(epoch: int) -> str:
    """Return the folder of the rows of an epoch that are on their way to sinks."""
    return f"{OUTBOX}/{numbered(epoch)}"


def delivery(epoch: EpochNumber, sink: str, subquery: str, instance: InstanceId, attempt: str, suffix: str) -> str:
    """Return the name of rows on their way to a sink.

    >>> delivery(7, "out", "sums", 0, "1a2b", ".parquet")
    'outbox/000000007/out-sums-0-1a2b.parquet'
    """
    return f"{outbox(epoch)}/{sink}-{subquery}-{instance}-{attempt}{suffix}"


def blob(epoch: EpochNumber, subquery: str, instance: InstanceId, attempt: str) -> str:
    """Return the name of what a prefix sent, if that is kept.

    >>> blob(7, "calls", 0, "1a2b")
    'buffer/000000007/calls-0-1a2b.blob'
    """
    return f"{BUFFER}/{numbered(epoch)}/{subquery}-{instance}-{attempt}.blob"


def checked(file: str, crc: int) -> str:
    """Return the name of a file with its checksum in it: a cache may have it damaged.

    >>> checked("outbox/000000007/out-sums-0-1a2b.parquet", 0xC0FFEE)
    'outbox/000000007/out-sums-0-1a2b~00c0ffee.parquet'
    """
    folder, slash, name = file.rpartition("/")
    whose, dash, attempt = name.rpartition("-")  # steps may have dots in their names
    attempt, dot, suffix = attempt.partition(".")
    return f"{folder}{slash}{whose}{dash}{attempt}~{crc:08x}{dot}{suffix}"


def checksum_of(name: str) -> int | None:
    """Return the checksum in the name of a file; None if it has none.

    >>> checksum_of("out-sums-0-1a2b~00c0ffee.parquet")
    12648430
    """
    found = re.search(r"~([0-9a-f]{8})(\.|$)", name.rpartition("-")[2])
    return int(found[1], 16) if found else None


def spark_record(record: str, generation: int = 1) -> str:
    """Return the name under which the run of a generation keeps a record of Spark's; no other run writes that file.

    >>> spark_record("offsets/7"), spark_record("offsets/7", 2)
    ('spark/offsets/7', 'spark/offsets/7~2')
    """
    return f"{SPARK}/{record}" + (f"~{generation}" if generation > 1 else "")


def command(id: str) -> str:
    """Return the name of a command to the running query."""
    return f"{CONTROL}/{id}.json"


def savepoint(name: str) -> str:
    """Return the folder of a savepoint."""
    return f"{SAVEPOINTS}/{name}"
