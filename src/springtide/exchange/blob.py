"""Blobs: what one sender sends to one instance in one epoch — a control header and one Arrow batch of tuples.

    ┌───────┬──────────────┬─────────────┬──────────────────────────────┐
    │ magic │ header bytes │ header JSON │ Arrow IPC stream, or nothing │
    └───────┴──────────────┴─────────────┴──────────────────────────────┘

The header goes to every instance, with or without tuples: it carries the time of each physical stream that the sender saw (the dummy
tuples of SC-6), so that every instance computes the same merged time in the same epoch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from springtide.query.ids import Micros

Times = Mapping[str, Mapping[str, Micros]]
"""Source → physical stream → its time."""

_MAGIC = b"ST1b"
_LENGTH = struct.Struct("<I")
_ALIGNMENT = 64
"""Bytes to align columns to, so that they can be read in place."""


@dataclass(frozen=True)
class Blob:
    """Tuples for one instance, with the header that goes with them."""

    exchange: int
    """Which exchange of the plan."""
    times: Times
    greatest: Mapping[str, Micros] = field(default_factory=dict)
    """Source → the greatest time of any tuple that the sender saw."""
    tuples: pl.DataFrame | None = field(default=None, repr=False)

    def encode(self) -> bytes:
        """Return it as bytes."""
        said = {"exchange": self.exchange, "times": self.times, "greatest": self.greatest}
        header = json.dumps(said, sort_keys=True).encode()  # equal blobs are equal bytes, whoever made them
        if self.tuples is None or not self.tuples.height:
            return _MAGIC + _LENGTH.pack(len(header)) + header
        header += b" " * (-(len(header) + 8) % _ALIGNMENT)
        # Strings are written one after the other, not as Polars' views into the strings of many more rows.
        table = self.tuples.to_arrow(compat_level=pl.CompatLevel.oldest())
        out = pa.BufferOutputStream()
        out.write(_MAGIC + _LENGTH.pack(len(header)) + header)
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        data: bytes = out.getvalue().to_pybytes()
        return data

    @staticmethod
    def decode(data: bytes) -> Blob:
        """Return the blob that `encode` wrote."""
        if data[:4] != _MAGIC:
            raise ValueError("this is not a blob of this version")
        (length,) = _LENGTH.unpack_from(data, 4)
        header = json.loads(data[8 : 8 + length])
        body = pa.py_buffer(data)[8 + length :]
        tuples = pl.from_arrow(pa.ipc.open_stream(body).read_all(), rechunk=False) if len(body) else None
        assert isinstance(tuples, pl.DataFrame | None)
        return Blob(header["exchange"], header["times"], header["greatest"], tuples)
