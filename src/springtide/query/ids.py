"""Kinds of numbers that must not be mixed up. They are plain integers while a query runs; the type checker tells them apart."""

from __future__ import annotations

from typing import NewType

BucketId = NewType("BucketId", int)
"""A part of the hashed keys of a subquery, counted from 0."""
InstanceId = NewType("InstanceId", int)
"""A parallel worker of a subquery, counted from 0."""
EpochNumber = NewType("EpochNumber", int)
"""An epoch, counted from 0."""
NO_EPOCH = EpochNumber(-1)
"""Before the first one."""
Generation = NewType("Generation", int)
"""A run on a checkpoint; each run has a higher number than those before it."""
Micros = NewType("Micros", int)
"""A point in time or a length of time, in microseconds; points in time count from 1970, UTC."""
