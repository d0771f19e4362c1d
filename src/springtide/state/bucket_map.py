"""Bucket maps: which instance owns which bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from springtide.query.ids import BucketId, InstanceId
from springtide.state.shapes import SIGNED, listed, record, whole

MOST_INSTANCES = 1 << 20
"""Of a subquery."""


@dataclass(frozen=True)
class BucketMap:
    """Bucket → instance, immutable and versioned (the BIM of SC-6). It takes effect at an epoch boundary."""

    version: int
    instances: int
    owners: tuple[InstanceId, ...]
    """By bucket."""

    @staticmethod
    def even(buckets: int, instances: int, version: int = 0) -> BucketMap:
        """Assign the buckets to instances in turn."""
        return BucketMap(version, instances, tuple(InstanceId(b % instances) for b in range(buckets)))

    @staticmethod
    def grid(rows: int, columns: int, instances: int, version: int = 0) -> BucketMap:
        """Assign the cells of a grid in rectangles, as square as the number of instances allows: a row or a column meets few owners.

        >>> BucketMap.grid(2, 4, 4).owners
        (0, 0, 1, 1, 2, 2, 3, 3)
        """
        high = max(d for d in range(1, instances + 1) if instances % d == 0 and d * d <= instances)
        wide = instances // high
        if rows < high or columns < wide:  # more instances than such rectangles: some cells change hands cell by cell
            return BucketMap.even(rows * columns, instances, version)
        owners = (r * high // rows * wide + c * wide // columns for r in range(rows) for c in range(columns))
        return BucketMap(version, instances, tuple(map(InstanceId, owners)))

    def to_json(self) -> dict[str, Any]:
        """Write it for manifests and history."""
        return {"version": self.version, "instances": self.instances, "owners": list(self.owners)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BucketMap:
        """Read what `to_json` wrote."""
        return BucketMap(data["version"], data["instances"], tuple(data["owners"]))

    def __reduce__(self) -> tuple[type[BucketMap], tuple[int, int, tuple[InstanceId, ...]]]:
        """Go to the tasks as it was made."""
        return BucketMap, (self.version, self.instances, self.owners)

    @cached_property
    def array(self) -> npt.NDArray[np.intp]:
        """Return the owners for sums over many buckets."""
        return np.array(self.owners, dtype=np.intp)

    def buckets_of(self, instance: InstanceId) -> list[BucketId]:
        """Return the buckets that an instance owns."""
        return [BucketId(b) for b, owner in enumerate(self.owners) if owner == instance]


_MAP = record(version=SIGNED, instances=whole(1, MOST_INSTANCES), owners=listed(whole(most=MOST_INSTANCES)))


def check_map(where: str, value: Any) -> None:
    """Take a bucket map whose owners are all among its instances."""
    _MAP(where, value)
    if any(owner >= value["instances"] for owner in value["owners"]):
        raise ValueError(f"{where} has owners that are not among its {value['instances']} instances")
