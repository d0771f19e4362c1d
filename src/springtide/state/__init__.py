"""State at rest: segments, manifests, the checkpoint that holds them. Arrow and JSON only; nothing is unpickled.

What one can do with state has SEEP's names (SE-2); see `springtide.state.primitives`.
"""

from springtide.state.bucket_map import BucketMap
from springtide.state.primitives import (
    Checkpointed,
    ProcessingState,
    backup,
    checkpoint,  # from here on this name is the primitive; the module of that name is imported by its full name
    merge,
    partition,
    persist,
    replay,
    restore,
    spill,
    trim,
)
from springtide.state.processing import By
from springtide.state.savepoints import save, savepoints

__all__ = [
    "BucketMap",
    "By",
    "Checkpointed",
    "ProcessingState",
    "backup",
    "checkpoint",
    "merge",
    "partition",
    "persist",
    "replay",
    "restore",
    "save",
    "savepoints",
    "spill",
    "trim",
]
