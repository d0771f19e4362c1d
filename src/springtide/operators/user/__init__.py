"""User operators at runtime: by key and by bucket."""

from __future__ import annotations

from springtide.operators.operator import Operator
from springtide.operators.user.per_bucket import OperatorPerBucket
from springtide.operators.user.per_key import OperatorPerKey
from springtide.query import steps
from springtide.query.operators import KeyOperator

__all__ = ["OperatorPerBucket", "OperatorPerKey", "user_operator"]


def user_operator(label: str, step: steps.Operate, buckets: int) -> Operator:
    """Return the operator that runs the user's code, per key or per bucket; `label` names the step in errors."""
    kind = OperatorPerKey if isinstance(step.operator, KeyOperator) else OperatorPerBucket
    return kind(label, step, buckets)
