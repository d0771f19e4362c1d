"""Numbers that are not to be taken for one another. They are plain integers while a query runs; the type checker tells them apart."""

from __future__ import annotations

from typing import NewType

BucketId = NewType("BucketId", int)
"""A hash slice of the keys of a subquery, from 0 on."""
InstanceId = NewType("InstanceId", int)
"""A parallel worker of a subquery, from 0 on."""
EpochNumber = NewType("EpochNumber", int)
"""An epoch, from 0 on; -1 before the first."""
Generation = NewType("Generation", int)
"""A run on a checkpoint: each has a greater one than those before it."""
Micros = NewType("Micros", int)
"""A time or a length of time, in microseconds; times since 1970, UTC."""
