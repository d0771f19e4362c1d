"""User operators as heads: by key and by bucket."""

from __future__ import annotations

from springtide.query import steps
from springtide.query.operators import KeyOperator
from springtide.runtime.heads.head import Head
from springtide.runtime.heads.operating.buckets import BucketHead
from springtide.runtime.heads.operating.keys import KeyHead

__all__ = ["BucketHead", "KeyHead", "operating_head"]


def operating_head(label: str, step: steps.Operate, buckets: int) -> Head:
    """Give the head for either kind of operator; `label` names the step in errors."""
    kind = KeyHead if isinstance(step.operator, KeyOperator) else BucketHead
    return kind(label, step, buckets)
