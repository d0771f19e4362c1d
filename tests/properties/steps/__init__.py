"""Further stateful steps for random queries, a file each: `make(maker, pool, made)` gives a stream, or None if the columns do not do.

A step that needs the total order must not see columns that carry rounding: one bit would decide on the order.
"""

from collections.abc import Callable
from typing import Any

from tests.properties.steps import counting, joins, operators, rankings, sessions, theta

KINDS: list[Callable[[Any, list[Any], Any], Any]] = [
    counting.make,
    joins.make,
    operators.make,
    rankings.make,
    theta.make,
    sessions.make,
]
