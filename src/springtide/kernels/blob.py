"""Blobs: what one sender gives one instance in one epoch — a control header and one Arrow batch of tuples.

    ┌───────┬──────────────┬─────────────┬────────────────────────┐
    │ magic │ header bytes │ header JSON │ Arrow IPC, or nothing  │
    └───────┴──────────────┴─────────────┴────────────────────────┘

The header goes to every instance, tuples or not: it carries the time of each physical stream that the sender saw (the dummy
tuples of SC-6), so that every instance computes the same merged time in the same epoch.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

Times = Mapping[str, Mapping[str, int]]
"""Source → physical stream → its time."""

_MAGIC = b"ST1b"
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Blob:
    """Tuples for one instance, with the header that goes with them."""

    exchange: int
    """Which exchange of the plan."""
    times: Times
    greatest: Mapping[str, int] = field(default_factory=dict)
    """Source → the greatest time of a tuple that the sender saw."""
    tuples: pl.DataFrame | None = field(default=None, repr=False)

    def encode(self) -> bytes:
        """Write it as bytes."""
        header = json.dumps({"exchange": self.exchange, "times": self.times, "greatest": self.greatest}).encode()
        out = io.BytesIO()
        out.write(_MAGIC + _LENGTH.pack(len(header)) + header)
        if self.tuples is not None and self.tuples.height:
            self.tuples.write_ipc(out, compression="uncompressed")
        return out.getvalue()

    @staticmethod
    def decode(data: bytes) -> Blob:
        """Read what `encode` wrote."""
        if data[:4] != _MAGIC:
            raise ValueError("this is not a blob of this version")
        (length,) = _LENGTH.unpack_from(data, 4)
        header = json.loads(data[8 : 8 + length])
        body = memoryview(data)[8 + length :]
        tuples = pl.read_ipc(io.BytesIO(body)) if len(body) else None
        return Blob(header["exchange"], header["times"], header["greatest"], tuples)
